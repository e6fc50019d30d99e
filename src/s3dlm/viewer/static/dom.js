// Elements in one line each. Text is always set as text: what a model wrote is never markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

export function fixed(value, digits = 2) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

// Viridis: ordered by lightness, so that it reads in grey and with any colour vision. A high score
// is always the end that stands out from the background: bright on dark, deep on light.

const STOPS = [
  [68, 1, 84], [70, 50, 126], [54, 92, 141], [39, 127, 142], [31, 161, 135], [74, 193, 109],
  [160, 218, 57], [253, 231, 37],
];
const ENDS = { dark: [0.16, 1.0], light: [0.9, 0.02] };

export function theme() {
  return document.documentElement.dataset.theme;
}

export function scoreColour(score, [low, high]) {
  if (score === null || score === undefined) return "var(--unscored)";
  const share = high > low ? Math.min(Math.max((score - low) / (high - low), 0), 1) : 1;
  const [from, to] = ENDS[theme()] ?? ENDS.dark;
  return viridis(from + (to - from) * share);
}

function viridis(place) {
  const at = Math.min(Math.max(place, 0), 1) * (STOPS.length - 1);
  const left = Math.min(Math.floor(at), STOPS.length - 2);
  const mix = STOPS[left].map((value, i) => Math.round(value + (STOPS[left + 1][i] - value) * (at - left)));
  return `rgb(${mix.join(" ")})`;
}

export function scoreRamp(domain) {
  const stops = Array.from({ length: 9 }, (_, i) => scoreColour(domain[0] + (domain[1] - domain[0]) * i / 8, domain));
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
