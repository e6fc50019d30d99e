// One search as the trace tells it: a header, steps, a result. Lines are kept as they came, so that
// what is saved is what was seen.

const SPECIAL = /^<\|[^|]*\|>$|^<\/?s>$|^\[(EOS|PAD|SEP)\]$/;

export class Run {
  constructor(label = "") {
    this.label = label;
    this.lines = [];
    this.header = null;
    this.steps = [];
    this.result = null;
    this.pieces = new Map();
    this.state = "waiting";
    this.error = null;
  }

  take(line) {
    if (line.error) {
      this.fail(line.error.message);
      return;
    }
    this.lines.push(JSON.stringify(line));
    if (line.format) {
      if (line.format !== "s3dlm.trace") throw new Error("This file is not a trace of s3dlm.");
      this.header = line;
      this.state = "running";
    } else if (line.event === "step") {
      for (const [token, text] of Object.entries(line.pieces ?? {})) this.pieces.set(Number(token), text);
      this.steps.push(prepared(line));
    } else if (line.event === "result") {
      this.result = line;
      this.state = "done";
    }
  }

  fail(message) {
    this.error = message;
    this.state = "failed";
  }

  get method() {
    return this.header?.settings.method ?? this.label;
  }

  // An evaluation may have a name of its own for a method and its settings.
  get name() {
    return this.header?.label ?? this.method;
  }

  // Steps there are to be; a method that starts over counts from zero again.
  get planned() {
    return Math.max(this.steps[0]?.total ?? this.header?.settings.steps ?? 0, this.steps.length);
  }

  // A search that is satisfied ends before its last step: then there are no more.
  get total() {
    return this.result && this.steps.length ? this.steps.length : this.planned;
  }

  // Forward passes up to and with a step, and at the end those of the result: earlier traces do not
  // say what the start of a search took.
  nfe(step) {
    if (this.result && step === this.steps.length - 1) return this.result.nfe;
    return this.steps.slice(0, step + 1).reduce((sum, one) => sum + one.nfe + (one.start_nfe ?? 0), 0);
  }

  piece(token) {
    return this.pieces.get(token) ?? "·";
  }

  // What was known of these tokens before the first step: the text around the holes of an infilled one.
  given(tokens) {
    const stands = (row) => row.length === tokens.length && row.every((token, i) => token < 0 || token === tokens[i]);
    return this.header?.given?.find(stands) ?? null;
  }

  // An infilled text ends where it was given to end.
  isEnd(token) {
    return token >= 0 && !this.header?.given && SPECIAL.test(this.piece(token));
  }

  parentChild(step, child) {
    const before = this.steps[step - 1];
    return before ? before.survivor[this.steps[step].parent[child]] : null;
  }

  // The tokens that a child descends from: its parent's, or what was known before the first step.
  before(step, child) {
    const parent = this.parentChild(step, child);
    return this.steps[step - 1]?.tokens[parent] ?? this.given(this.steps[step].tokens[child]);
  }

  // The children, one a step, that a child of a step descends from.
  lineage(step, child) {
    const line = new Array(step + 1);
    for (let at = step, one = child; at >= 0; at -= 1) {
      line[at] = one;
      if (at > 0) one = this.parentChild(at, one);
      if (one === undefined || one === null) break;
    }
    return line;
  }

  // The survivor that stands for the answer; it may be a text of the past, which no survivor is.
  chosen() {
    if (!this.result) return null;
    const index = this.result.survivors.findIndex((one) => one.text === this.result.text);
    return index < 0 ? null : index;
  }

  winner() {
    const index = this.chosen();
    if (index === null || !this.steps.length) return [];
    const last = this.steps.length - 1;
    const child = this.steps[last].survivor[index];
    return child === undefined ? [] : this.lineage(last, child);
  }

  best(step) {
    const one = this.steps[step];
    if (!one) return null;
    const value = (child) => one.score[child] ?? one.confidence[child] ?? 0;
    return one.survivor.reduce((top, child) => (value(child) > value(top) ? child : top), one.survivor[0]);
  }

  fileName() {
    const parts = [this.name, this.header?.task, `seed${this.header?.settings.seed ?? 0}`];
    return `s3dlm-${parts.filter(Boolean).join("-")}.jsonl`;
  }

  text() {
    return `${this.lines.join("\n")}\n`;
  }
}

function prepared(step) {
  const copies = new Array(step.parent.length).fill(0);
  for (const child of step.survivor) copies[child] += 1;
  return { ...step, copies };
}

export function readRun(text, name) {
  const run = new Run(name);
  const lines = text.split("\n").filter((line) => line.trim());
  lines.forEach((line, index) => {
    try {
      run.take(JSON.parse(line));
    } catch (problem) {
      if (index < lines.length - 1 || !(problem instanceof SyntaxError)) throw problem;
    }
  });
  if (!run.header) throw new Error(`${name} is not a trace of s3dlm.`);
  if (run.state === "running") run.state = "done";
  return run;
}

// The range of scores of some runs, widened to tenths.
export function scoreDomain(runs) {
  let low = Infinity;
  let high = -Infinity;
  for (const run of runs) {
    for (const step of run.steps) {
      for (const score of step.score) {
        if (score === null) continue;
        low = Math.min(low, score);
        high = Math.max(high, score);
      }
    }
  }
  if (low > high) return [0, 1];
  return [Math.floor(low * 10) / 10, Math.min(1, Math.ceil(high * 10) / 10)];
}
