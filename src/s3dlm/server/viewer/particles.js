// The particles' texts: revealed tokens in ink, still masked ones as tiles that show faintly what the
// look-ahead would write there.
import { el, fixed } from "./dom.js";
import { scoreColour } from "./colour.js";

export function tokenSpans(run, step, child, ghosts) {
  const one = run.steps[step];
  const tokens = one.tokens[child];
  const clean = one.clean[child];
  const parent = run.parentChild(step, child);
  const before = parent === null || parent === undefined ? null : run.steps[step - 1].tokens[parent];
  const spans = [];
  for (let i = 0; i < tokens.length; i += 1) {
    const token = tokens[i];
    if (run.isEnd(token)) {
      spans.push(el("span", { class: "end", title: "end of the answer" }));
      break;
    }
    if (token >= 0) {
      const fresh = before ? before[i] < 0 : true;
      spans.push(el("span", { class: fresh ? "t new" : "t" }, visible(run.piece(token))));
    } else if (ghosts && clean[i] >= 0 && run.isEnd(clean[i])) {
      spans.push(el("span", { class: "m stop" }));
    } else {
      const ghost = ghosts && clean[i] >= 0 ? visible(run.piece(clean[i])) : "";
      spans.push(el("span", { class: ghost.trim() ? "m g" : "m" }, ghost));
    }
  }
  return trimmed(spans);
}

// A long run of masked ends says no more than a short one.
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
    el("p", { class: "canvas" }, ...tokenSpans(run, step, child, options.ghosts)),
    el(
      "span",
      { class: "marks" },
      el("span", { class: "value", title: score === null ? "confidence" : "score" }, fixed(shown)),
      el("span", { class: "meter" }, el("i", { "--share": `${100 * (shown ?? 0)}%` })),
      el("span", { class: "fate" }, fate),
    ),
  );
}
