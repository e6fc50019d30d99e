// The particles' texts: known tokens in ink, hidden ones as tiles that show faintly what the look-ahead
// would write there, with an outline where the parent knew a token: it was re-masked, or noise took its place.
import { el, fixed, scoreColour } from "./dom.js";
import { gridCells } from "./grid.js";

export function tokenSpans(run, step, child, ghosts) {
  const one = run.steps[step];
  const tokens = one.tokens[child];
  const clean = one.clean[child];
  const given = run.given(tokens);
  const before = run.before(step, child);
  const percent = one.percent?.[child] ?? [];
  const sure = (i, how) => (percent[i] === undefined ? null : `${how} with probability ${percent[i]} %`);
  const spans = [];
  for (let i = 0; i < tokens.length; i += 1) {
    const token = tokens[i];
    if (run.isEnd(token)) {
      spans.push(el("span", { class: "end", title: "end of the answer" }));
      break;
    }
    if (token >= 0) {
      const fresh = before ? before[i] !== token : true;
      const how = given?.[i] >= 0 ? "known from the start" : sure(i, "accepted");
      spans.push(el("span", { class: fresh ? "t new" : "t", title: how }, visible(run.piece(token))));
      continue;
    }
    const was = before?.[i] >= 0 ? `taken back: it was ${run.piece(before[i])}` : null;
    const back = was ? " back" : "";
    if (ghosts && clean[i] >= 0 && run.isEnd(clean[i])) {
      spans.push(el("span", { class: `m stop${back}`, title: was }));
    } else {
      const ghost = ghosts && clean[i] >= 0 ? visible(run.piece(clean[i])) : "";
      const title = [was, ghost ? sure(i, "predicted") : null].filter(Boolean).join("; ");
      spans.push(el("span", { class: `${ghost.trim() ? "m g" : "m"}${back}`, title: title || null }, ghost));
    }
  }
  return trimmed(spans);
}

// A long run of hidden ends says no more than a short one.
function trimmed(spans) {
  let last = spans.length;
  while (last > 0 && spans[last - 1].className === "m stop") last -= 1;
  return spans.slice(0, Math.min(spans.length, last + 3));
}

function visible(text) {
  return text.replaceAll("\n", "↵\n");
}

export function particleRow(run, step, child, options) {
  const one = run.steps[step];
  const score = one.score[child];
  const copies = one.copies[child];
  const fate = copies === 0 ? "died" : copies > 1 ? `×${copies}` : score === null ? "conf" : "";
  const shown = score ?? one.confidence[child];
  return el(
    "li",
    {
      class: ["particle", copies ? "" : "dead", options.focused ? "focused" : "", options.wins ? "wins" : ""].join(" ").trim(),
      "data-child": child,
      tabindex: options.focused ? "0" : "-1",
      "aria-label": `Particle ${child + 1}, ${copies ? "survives" : "dies"}, ${score === null ? "no score" : `score ${fixed(score)}`}`,
      "--score": scoreColour(score, options.domain),
    },
    el("span", { class: "number" }, String(child + 1)),
    run.header.columns
      ? gridCells(run, step, child, options.ghosts)
      : el("p", { class: "canvas" }, ...tokenSpans(run, step, child, options.ghosts)),
    el(
      "span",
      { class: "marks" },
      el("span", { class: "value", title: score === null ? "confidence" : "score" }, fixed(shown)),
      el("span", { class: "meter" }, el("i", { "--share": `${100 * (shown ?? 0)}%` })),
      el("span", { class: "fate" }, fate),
    ),
  );
}

// One particle in detail: what the verifier saw in it, against its parent; and the final vote.

export function inspector(run, { step, child }, domain) {
  const one = run.steps[step];
  const parent = run.parentChild(step, child);
  const before = parent === null || parent === undefined ? null : run.steps[step - 1];
  const parts = Object.entries(one.parts[child] ?? {});
  const copies = one.copies[child];
  const score = one.score[child];
  return [
    el(
      "div",
      { class: "headline", "--score": scoreColour(score, domain) },
      el("strong", { class: "figure" }, fixed(score)),
      el(
        "div",
        {},
        el("b", {}, `Particle ${child + 1}, step ${step + 1}`),
        el("span", {}, copies === 0 ? "died here" : copies > 1 ? `survived, ${copies} copies` : "survived"),
      ),
    ),
    el(
      "dl",
      { class: "facts" },
      ...fact("weight", fixed(one.weight[child], 3)),
      ...fact("confidence", fixed(one.confidence[child], 3)),
      ...fact("parent", before ? String(parent + 1) : "the empty canvas"),
    ),
    parts.length
      ? el("ul", { class: "parts" }, ...parts.map(([name, value]) => part(name, value, before?.parts[parent]?.[name])))
      : el("p", { class: "soft" }, "The verifier was not asked at this step."),
  ];
}

function fact(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

function part(name, value, before) {
  const change = before === undefined || before === null ? 0 : value - before;
  const arrow = Math.abs(change) < 0.005 ? "" : change > 0 ? "▲" : "▼";
  return el(
    "li",
    {},
    el("span", { class: "name" }, name.replaceAll("_", "-")),
    el(
      "span",
      { class: "track" },
      el("i", { "--share": `${100 * value}%` }),
      before === undefined || before === null ? null : el("em", { title: `parent ${fixed(before)}`, "--share": `${100 * before}%` }),
    ),
    el("span", { class: "value" }, fixed(value)),
    el("span", { class: arrow === "▲" ? "change up" : "change", "aria-label": arrow ? `${change > 0 ? "up" : "down"} from the parent` : null }, arrow),
  );
}

export function votes(run, domain) {
  if (run.state === "failed") return [el("p", { class: "soft" }, "The search ended before a vote.")];
  if (!run.result) return [el("p", { class: "soft" }, "The survivors vote when the last step is done.")];
  const { survivors, answer, text } = run.result;
  const groups = new Map();
  for (const one of survivors) {
    if (!groups.has(one.answer)) groups.set(one.answer, []);
    groups.get(one.answer).push(one);
  }
  const order = [...groups.entries()].sort((a, b) => (b[0] === answer) - (a[0] === answer) || b[1].length - a[1].length);
  return [
    el("ol", { class: "votes" }, ...order.map(([given, holders]) => group(given, holders, survivors.length, given === answer, domain))),
    run.result.stopped === "satisfied" ? el("p", { class: "soft" }, `The verifier was satisfied after ${run.steps.length} ${run.steps.length === 1 ? "step" : "steps"}; what was still hidden then was filled in at once.`) : null,
    groups.has(answer) ? null : el("p", { class: "soft" }, "The answer comes from a text seen on the way, not from a survivor."),
    el("blockquote", { class: "final" }, text || "(an empty text)"),
    graded(run),
    run.result.prompt ? el("details", { class: "prompt" }, el("summary", {}, "The prompt as the model read it"), el("pre", {}, run.result.prompt)) : null,
  ].filter(Boolean);
}

// What is known of the answer: its gold answer and grade, and how probably it is right.
export function verdict(run) {
  const { gold, correct, gold_text: words } = run.header ?? {};
  const chance = run.result?.p_correct;
  return [
    correct === undefined ? null : el("span", { class: correct === 1 ? "grade right" : "grade wrong" }, correct === 1 ? "✓ right" : correct === 0 ? "✗ wrong" : `${Math.round(100 * correct)} % right`),
    gold === undefined || correct === 1 ? null : el("span", { class: "gold" }, "gold: ", el("b", {}, words ?? JSON.stringify(gold))),
    chance === undefined || chance === null ? null : el("span", { class: "chance", title: "by the model’s calibration" }, `probably right: ${Math.round(100 * chance)} %`),
  ].filter(Boolean);
}

function graded(run) {
  const known = verdict(run);
  return known.length ? el("p", { class: "graded" }, ...known) : null;
}

function group(given, holders, all, wins, domain) {
  const blocks = holders.map((one) =>
    el("i", { "--score": scoreColour(one.score, domain), title: `score ${fixed(one.score)}, NLL ${fixed(one.nll)}` }));
  return el(
    "li",
    { class: wins ? "wins" : "" },
    el("code", {}, given === null ? "no answer" : given),
    el("span", { class: "ballots" }, ...blocks),
    el("span", { class: "count" }, `${holders.length} of ${all}`),
  );
}
