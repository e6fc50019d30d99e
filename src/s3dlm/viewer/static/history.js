// Earlier searches, kept in this browser, and links that repeat them. A search is a function of its
// request, so a link needs no more than the request.
import { el } from "./dom.js";
import { remember, remembered } from "./client.js";

const HISTORY = "s3dlm-history";
const MOST = 30;

export function linkTo(bodies) {
  return `#search=${encodeURIComponent(JSON.stringify(bodies))}`;
}

// The requests that the address holds; null if none.
export function linked() {
  const found = /^#search=(.+)$/.exec(location.hash);
  if (!found) return null;
  try {
    const value = JSON.parse(decodeURIComponent(found[1]));
    return Array.isArray(value) && value.length ? value.slice(0, 2) : null;
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
  const link = linkTo(bodies);
  const others = pastSearches().filter((one) => linkTo(one.bodies) !== link);
  remember(HISTORY, JSON.stringify([{ bodies, answers }, ...others].slice(0, MOST)));
}

export function historyList() {
  const rows = pastSearches().map(({ bodies, answers }) => row(
    linkTo(bodies),
    bodies.map((one) => one.method).join(" | "),
    [bodies[0].prompt, bodies[0].infill].filter(Boolean).join(" · "),
    answers.map((one) => one ?? "no answer").join(" | "),
  ));
  return rows.length ? el("ol", { class: "rows" }, ...rows) : el("p", { class: "soft" }, "Nothing yet.");
}

function row(href, method, prompt, note) {
  return el("li", {}, el("a", { href }, el("b", {}, method), el("span", { class: "what" }, prompt.replace(/\s+/g, " "))), el("span", { class: "note" }, note));
}
