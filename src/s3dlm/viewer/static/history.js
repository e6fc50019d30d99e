// Earlier searches, kept in this browser, and links that repeat a search or open a recorded one. A
// search is a function of its request, so a link needs no more than the request.
import { el } from "./dom.js";
import { remember, remembered } from "./client.js";

const HISTORY = "s3dlm-history";
const MOST = 30;
const MOST_ROWS = 200;

export function linkTo(kind, value) {
  return `#${kind}=${encodeURIComponent(JSON.stringify(value))}`;
}

// What the address asks for: { search: bodies } or { traces: ids }; null if nothing.
export function linked() {
  const found = /^#(search|traces)=(.+)$/.exec(location.hash);
  if (!found) return null;
  try {
    const value = JSON.parse(decodeURIComponent(found[2]));
    return Array.isArray(value) && value.length ? { [found[1]]: value.slice(0, 2) } : null;
  } catch {
    return null;
  }
}

export function pastSearches() {
  try {
    const found = JSON.parse(remembered(HISTORY) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

export function addSearch(bodies, answers) {
  const link = linkTo("search", bodies);
  const others = pastSearches().filter((one) => linkTo("search", one.bodies) !== link);
  remember(HISTORY, JSON.stringify([{ bodies, answers }, ...others].slice(0, MOST)));
}

export function historyList() {
  const rows = pastSearches().map(({ bodies, answers }) => row(
    linkTo("search", bodies),
    bodies.map((one) => one.method).join(" | "),
    [bodies[0].prompt, bodies[0].infill].filter(Boolean).join(" · "),
    answers.map((one) => one ?? "no answer").join(" | "),
  ));
  return rows.length ? el("ol", { class: "rows" }, ...rows) : el("p", { class: "soft" }, "Nothing yet.");
}

// The recorded searches of evaluation runs; one opens, and a second of the same problem stands beside it.
export function recordedRows(list, words) {
  const wanted = words.toLowerCase().split(/\s+/);
  const has = (one) => {
    const text = [one.run, one.task, one.label, one.method, one.sample, one.question].join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
  const found = list.filter(has);
  if (!found.length) return el("p", { class: "soft" }, "No recorded search has all these words.");
  const more = found.length > MOST_ROWS ? [el("li", { class: "soft" }, `${found.length - MOST_ROWS} more: add words to find them.`)] : [];
  return el("ol", { class: "rows" }, ...found.slice(0, MOST_ROWS).map((one) => {
    const other = list.find((two) => two.task === one.task && two.sample === one.sample && two.label !== one.label);
    const mark = one.correct === null ? "" : one.correct === 1 ? "✓ " : "✗ ";
    const line = row(linkTo("traces", [one.id]), `${mark}${one.label}`, one.question, one.sample);
    if (other) line.append(el("a", { class: "beside", href: linkTo("traces", [one.id, other.id]) }, `beside ${other.label}`));
    return line;
  }), ...more);
}

function row(href, method, prompt, note) {
  return el("li", {}, el("a", { href }, el("b", {}, method), el("span", { class: "what" }, prompt.replace(/\s+/g, " "))), el("span", { class: "note" }, note));
}
