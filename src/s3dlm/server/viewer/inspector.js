// One particle in detail: what the verifier saw in it, against its parent; and the final vote.
import { el, fixed } from "./dom.js";
import { scoreColour } from "./colour.js";

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
  if (run.state === "failed") return [el("p", { class: "failure", role: "alert" }, run.error)];
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
    run.early ? el("p", { class: "soft" }, `The survivors agreed after ${run.steps.length} of ${run.planned} steps, so what was still masked was filled in at once.`) : null,
    groups.has(answer) ? null : el("p", { class: "soft" }, "The answer comes from a text seen on the way, not from a survivor."),
    el("blockquote", { class: "final" }, text || "(an empty text)"),
  ].filter(Boolean);
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
