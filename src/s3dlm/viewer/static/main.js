// The page: what is asked, the searches on stage, the time they share.
import { byId, el } from "./dom.js";
import { Run, readRun, scoreDomain } from "./run.js";
import { Refused, exampleTrace, offered, remember, remembered, setKey, watchSearch } from "./client.js";
import { addSearch, historyList, linkTo, linked } from "./history.js";
import { Panel } from "./panel.js";
import { Form } from "./form.js";
import { Transport } from "./transport.js";

const THEME = "s3dlm-theme";
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

const view = {
  step: 0,
  ghosts: true,
  everyone: false,
  domain: [0, 1],
  summaries: {},
  runs: [],
  panels: [],
  busy: false,
  get total() { return Math.max(0, ...this.runs.map((run) => run.total)); },
  get arrived() { return Math.max(0, ...this.runs.map((run) => run.steps.length)); },
  seek(step) {
    this.step = Math.min(Math.max(step, 0), Math.max(0, this.arrived - 1));
    this.panels.forEach((panel) => panel.show());
    transport.show();
  },
};

const transport = new Transport(view, [
  toggle("Look-ahead", view.ghosts, "Show what the look-ahead would write into masked positions", (on) => { view.ghosts = on; }),
  toggle("All children", view.everyone, "Also show the children that died", (on) => { view.everyone = on; }),
]);
let form = null;
let running = null;
let pending = 0;
let clicked = false; // a link of this page

function toggle(label, on, title, act) {
  const input = el("input", { type: "checkbox", checked: on, onchange: () => { act(input.checked); view.seek(view.step); } });
  return el("label", { class: "toggle", title }, input, label);
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  redraw();
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = remembered(THEME) ?? (dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => { if (!remembered(THEME)) setTheme(dark.matches ? "dark" : "light"); });
  byId("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember(THEME, next);
    setTheme(next);
  });
}

// Put searches on stage, side by side if there are two.
function stage(runs) {
  view.runs = runs;
  view.step = 0;
  view.panels = runs.map((run) => new Panel(run, view));
  byId("panels").replaceChildren(...view.panels.map((panel) => panel.node));
  byId("panels").classList.toggle("two", runs.length > 1);
  byId("empty").hidden = runs.length > 0;
  byId("transport").hidden = runs.length === 0;
  askedQuestion();
  redraw();
}

// Nothing on stage: a new question is being looked at.
function clear() {
  transport.pause();
  if (view.runs[0]?.label === "example") transport.setPace(8);
  view.busy = false;
  form.busy(false);
  stage([]);
  byId("empty").hidden = true;
}

function askedQuestion() {
  const headers = view.runs.map((run) => run.header).filter(Boolean);
  const different = headers.filter((one, index) => index === 0 || one.question !== headers[0].question);
  const written = form && different.length === 1 && form.prompt.value === headers[0].question && [headers[0].task ?? "", headers[0].task ?? "none"].includes(form.task.input.value);
  byId("question").hidden = !headers.length || written;
  byId("question").replaceChildren(
    ...different.map((one) => el("p", {}, el("span", { class: "chip" }, one.task?.split("/").pop() ?? "no task"), one.columns ? null : el("q", {}, one.question || one.infill))), // a grid shows its clues
  );
}

function redraw() {
  view.domain = scoreDomain(view.runs);
  view.panels.forEach((panel) => panel.draw());
  transport.show();
}

// Many events may arrive between two frames; they are drawn together.
function soon() {
  if (pending) return;
  pending = requestAnimationFrame(() => {
    pending = 0;
    redraw();
  });
}

async function ask() {
  if (form.prompt.required && !form.prompt.value.trim()) {
    form.prompt.focus();
    return;
  }
  running?.abort();
  const mine = new AbortController();
  running = mine;
  clear();
  form.complain(await form.unknown());
  if (!form.problem.hidden || running !== mine) return;
  form.busy(true);
  view.busy = true;
  const bodies = form.bodies();
  history.replaceState(null, "", linkTo(bodies));
  const runs = bodies.map((body) => new Run(body.method));
  stage(runs);
  if (!calm) transport.start();
  byId("said").textContent = "Searching";
  await Promise.all(runs.map((run, index) => follow(run, bodies[index], mine.signal)));
  if (running !== mine) return;
  view.busy = false;
  form.busy(false);
  byId("transport").hidden = view.arrived === 0;
  if (runs.every((run) => run.result)) addSearch(bodies, runs.map((run) => run.result.answer));
  if (calm) view.seek(view.arrived - 1);
  byId("said").textContent = runs.map((run) => `${run.name}: ${run.result?.answer ?? run.error ?? "no answer"}`).join("; ");
}

async function follow(run, body, signal) {
  try {
    await watchSearch(body, (line) => {
      run.take(line);
      if (line.format) askedQuestion();
      soon();
    }, signal);
  } catch (problem) {
    run.fail(signal.aborted ? "it was stopped" : problem.message);
    soon();
  }
}

async function openFiles(files) {
  try {
    const chosen = [...files].slice(0, 2);
    const runs = await Promise.all(chosen.map(async (file) => readRun(await file.text(), file.name)));
    await show(runs);
  } catch (problem) {
    complain(problem.message);
  }
}

// Put recorded searches on stage, and what they were asked into the form.
async function show(runs) {
  running?.abort();
  view.busy = false;
  stage(runs);
  view.seek(view.arrived - 1);
  const bodies = await form?.requests(runs.map((run) => run.header));
  if (!bodies || view.runs !== runs) return;
  form.fill(bodies);
  askedQuestion();
}

// The list of this browser's searches.
function historyMenu() {
  const box = el("div", { class: "menu" });
  const node = el("details", { class: "drop-down", ontoggle: () => { if (node.open) box.replaceChildren(historyList()); }, onclick: (event) => { if (event.target.closest("a")) { node.open = false; clicked = true; } } }, el("summary", { class: "quiet" }, "History"), box);
  byId("menus").replaceChildren(node);
}

function closeMenus(which = () => true) {
  for (const one of [...byId("menus").children].filter((one) => one.open && which(one))) {
    const inside = one.contains(document.activeElement);
    one.open = false;
    if (inside) one.querySelector("summary").focus();
  }
}

// Do what the address asks for. Another site may open an address here, too: a search runs on a click.
async function follows() {
  const wanted = linked();
  const run = clicked;
  clicked = false;
  if (wanted && form) {
    form.fill(wanted);
    if (run) await ask();
    else form.go.focus();
  }
}

function complain(message) {
  byId("empty").hidden = false;
  byId("empty").replaceChildren(el("p", { class: "failure", role: "alert" }, message));
}

function listen() {
  addEventListener("hashchange", follows);
  byId("open").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    openFiles(event.target.files);
    event.target.value = "";
  });
  addEventListener("dragover", (event) => { event.preventDefault(); byId("drop").hidden = false; });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("drop").hidden = true; });
  addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").hidden = true;
    if (event.dataTransfer.files.length) openFiles(event.dataTransfer.files);
  });
  addEventListener("resize", soon);
  addEventListener("keydown", onKey);
  addEventListener("click", (event) => closeMenus((one) => !one.contains(event.target)));
}

function onKey(event) {
  if (event.key === "Escape") closeMenus();
  const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !view.runs.length) return;
  const panel = view.panels.find((one) => one.node.contains(document.activeElement)) ?? view.panels[0];
  const acts = {
    ArrowLeft: () => transport.by(-1),
    ArrowRight: () => transport.by(1),
    Home: () => transport.go(0),
    End: () => transport.go(view.arrived - 1),
    ArrowUp: () => panel.move(-1),
    ArrowDown: () => panel.move(1),
    " ": () => transport.toggle(),
  };
  const onButton = event.key === " " && event.target.closest("button, summary, label");
  if (!acts[event.key] || onButton) return;
  event.preventDefault();
  acts[event.key]();
}

function welcome(options) {
  if (view.runs.length || byId("empty").querySelector("[role=alert]")) return; // a file was quicker than the server
  byId("empty").hidden = false;
  byId("empty").replaceChildren(
    el("h2", {}, "A diffusion model fills in its answer everywhere at once. A search decides which drafts to continue."),
    el("p", {}, "Pick an example or type a question. A particle is a partly written answer: at every step it has children, the verifier scores what each child would become, and resampling keeps the promising ones."),
    ...(options && linked() ? [el("p", {}, "The address of this page holds a search. Press Search to run it.")] : []),
    ...(options && !linked() ? [el("p", {}, "Below, a recorded search fills a Sudoku and re-masks digits that occur twice.")] : []),
    ...(options ? [] : [el("p", { class: "soft" }, "Open a trace recorded with s3dlm generate … --trace FILE.")]),
  );
}

// A recorded search plays until the first question is asked.
async function playExample() {
  const run = readRun(await exampleTrace(), "example");
  if (view.runs.length || byId("empty").querySelector("[role=alert]")) return;
  stage([run]);
  byId("empty").hidden = false;
  view.seek(calm ? view.arrived - 1 : 0);
  transport.setPace(4);
  if (!calm) transport.start();
}

function needKey(problem) {
  const input = el("input", { type: "password", autocomplete: "off", "aria-label": "API key", placeholder: "API key" });
  const entry = el("form", { class: "ask keyed", onsubmit: (event) => { event.preventDefault(); setKey(input.value); start(); } },
    el("p", {}, problem.message), el("div", { class: "line" }, input, el("button", { class: "go" }, "Continue")));
  byId("ask").hidden = false;
  byId("ask").replaceChildren(entry);
  input.focus();
}

async function start() {
  try {
    const options = await offered();
    view.summaries = options.methods;
    byId("model").textContent = options.model;
    byId("model").hidden = false;
    form = new Form(options, ask, () => running?.abort());
    byId("ask").hidden = false;
    byId("ask").replaceChildren(form.node);
    historyMenu();
    welcome(options);
    follows();
    if (!linked()) playExample().catch(() => {}); // the page works without it
  } catch (problem) {
    if (problem instanceof Refused && problem.status === 401) needKey(problem);
    else welcome(null);
  }
}

function main() {
  startTheme();
  byId("transport").replaceChildren(...transport.nodes);
  listen();
  const recorded = byId("recorded");
  if (!recorded) {
    start();
    return;
  }
  const runs = JSON.parse(recorded.textContent).map((one) => readRun(one.text, one.name));
  byId("model").textContent = runs[0].header.model;
  byId("model").hidden = false;
  show(runs);
  if (!calm) {
    view.seek(0);
    transport.start();
  }
}

main();
