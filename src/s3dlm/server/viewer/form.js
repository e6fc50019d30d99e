// What to ask and how to search: examples, prompt, task, method, a second method to compare.
import { el } from "./dom.js";

const NUMBERS = [
  ["particles", "Particles N", 1, 1],
  ["branching", "Branching b", 1, 1],
  ["lam", "λ", 0, 0.1],
  ["temperature", "Temperature", 0, 0.1],
  ["steps", "Steps", 1, 1],
  ["gen_length", "Length", 1, 1],
  ["block_length", "Block", 1, 1],
  ["seed", "Seed", 0, 1],
];

// Left empty, the method decides.
const OWN_NUMBERS = [
  ["ess_threshold", "ESS threshold", 0, 0.1],
  ["heat", "Heat", 1, 0.1],
  ["patience", "Patience", 0, 1],
  ["repairs", "Repairs", 0, 1],
];
const OWN_CHOICES = [
  ["profile", "Verifier"],
  ["resampling", "Resampling"],
  ["tilt", "Tilt"],
  ["siblings", "Siblings"],
  ["selection", "Selection"],
];

export class Form {
  constructor(options, ask, stop) {
    this.options = options;
    this.prompt = el("textarea", { id: "prompt", rows: "2", spellcheck: "false", placeholder: "Type a question, or pick an example", "aria-label": "Prompt", required: true });
    this.task = select("Task", [["", "none"], ...named(options.tasks)], "");
    this.method = select("Method", named(Object.keys(options.methods)), options.defaults.method);
    this.against = select("Compare with", [["", "nothing"], ...named(Object.keys(options.methods))], "");
    this.numbers = NUMBERS.map(([name, label, least, step]) => number(name, label, options.defaults[name], least, step));
    this.policy = select("Reveal first", named(options.choices.policy), options.defaults.policy);
    this.budget = number("budget", "Budget (NFE)", "", 2, 1, "none");
    this.ownNumbers = OWN_NUMBERS.map(([name, label, least, step]) => number(name, label, options.defaults[name], least, step, "own"));
    this.ownChoices = OWN_CHOICES.map(([name, label]) => [name, select(label, [["", "own"], ...named(options.choices[name])], options.defaults[name] ?? "")]);
    this.picked = el("p", { class: "soft picked", role: "status", hidden: true });
    this.problem = el("p", { class: "failure", role: "alert", hidden: true });
    this.go = el("button", { type: "submit", class: "go" }, "Search");
    this.halt = el("button", { type: "button", class: "quiet", hidden: true, onclick: stop }, "Stop");
    this.node = el(
      "form",
      { class: "ask", onsubmit: (event) => { event.preventDefault(); ask(); } },
      el("div", { class: "examples", role: "group", "aria-label": "Examples" }, ...options.examples.map((one) => this.example(one))),
      el(
        "div",
        { class: "line" },
        this.prompt,
        el("div", { class: "settings" }, this.task.node, this.method.node, this.against.node),
        el("div", { class: "buttons" }, this.go, this.halt),
      ),
      el(
        "details",
        { oninput: () => this.spend() },
        el("summary", {}, "Settings"),
        el("div", { class: "settings" }, this.budget.node, ...this.numbers.map((one) => one.node), this.policy.node),
        this.picked,
        el("h3", {}, "Beyond the paper; own: what the method has by itself"),
        el("div", { class: "settings" }, ...this.ownChoices.map(([, one]) => one.node), ...this.ownNumbers.map((one) => one.node)),
      ),
      this.problem,
    );
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.node.requestSubmit();
      }
    });
  }

  example({ task, prompt }) {
    const short = prompt.replace(/\s+/g, " ");
    return el(
      "button",
      { type: "button", class: "example", title: prompt, onclick: () => { this.prompt.value = prompt; this.task.value = task; this.node.requestSubmit(); } },
      el("b", {}, task),
      short.length > 44 ? `${short.slice(0, 42)}…` : short,
    );
  }

  // A budget stands in the place of N and b; what the server will pick is shown beside it.
  spend() {
    const given = this.budget.input.value !== "";
    const [particles, branching, steps] = ["particles", "branching", "steps"].map((name) => this.numbers.find((one) => one.name === name).input);
    particles.disabled = branching.disabled = given;
    this.picked.hidden = !given;
    if (!given) return;
    const rows = Math.min(Math.floor((Number(this.budget.input.value) - 1) / Number(steps.value)), this.options.limits.children);
    const b = rows >= 4 ? 2 : 1;
    this.picked.textContent = rows >= 1
      ? `picks N = ${Math.floor(rows / b)}, b = ${b}: at most ${1 + Number(steps.value) * Math.floor(rows / b) * b} forwards`
      : `too little for ${steps.value} steps: give at least ${Number(steps.value) + 1}`;
  }

  // One body for each method that is to run; the second has only those of our extras that it knows.
  bodies() {
    const filled = (numbers) => numbers.filter((one) => one.input.value !== "" && !one.input.disabled).map((one) => [one.name, Number(one.input.value)]);
    const task = this.task.value ? { task: this.task.value } : {};
    const base = { prompt: this.prompt.value, ...Object.fromEntries(filled([this.budget, ...this.numbers])), policy: this.policy.value, ...task };
    const own = [...filled(this.ownNumbers), ...this.ownChoices.filter(([, one]) => one.value).map(([name, one]) => [name, one.value])];
    const [method, against] = [this.method.value, this.against.value];
    const known = own.filter(([name]) => this.options.knobs[against]?.includes(name));
    const bodies = [{ ...base, ...Object.fromEntries(own), method }];
    return against ? [...bodies, { ...base, ...Object.fromEntries(known), method: against }] : bodies;
  }

  busy(is) {
    this.halt.hidden = !is;
  }

  complain(message) {
    this.problem.textContent = message ?? "";
    this.problem.hidden = !message;
  }
}

function select(label, choices, value) {
  const input = el("select", { "aria-label": label }, ...choices.map(([name, text]) => el("option", { value: name, selected: name === value }, text)));
  return {
    node: el("label", {}, el("span", {}, label), input),
    get value() { return input.value; },
    set value(name) { input.value = name; },
  };
}

function named(names) {
  return names.map((name) => [name, name]);
}

function number(name, label, value, least, step, placeholder) {
  const input = el("input", { type: "number", value: value ?? "", placeholder, min: least, step: step < 1 ? "any" : step, inputmode: "decimal", name, "aria-label": label });
  return { name, input, node: el("label", {}, el("span", {}, label), input) };
}
