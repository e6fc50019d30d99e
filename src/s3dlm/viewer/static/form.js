// What to ask and how to search: examples, prompt, task, method, a second method to compare, and all
// settings as the server declares them. A setting that is left empty keeps the method's default.
import { resolved } from "./client.js";
import { el } from "./dom.js";

const LABELS = { lam: "λ", gen_length: "Length", block_length: "Block length", ess_threshold: "ESS threshold" };

export class Form {
  constructor(options, ask, stop) {
    this.options = options;
    const methods = Object.keys(options.methods);
    this.prompt = el("textarea", { id: "prompt", rows: "2", spellcheck: "false", placeholder: "Type a question, or pick an example", "aria-label": "Prompt", required: true });
    this.infill = el("textarea", { id: "infill", rows: "1", spellcheck: "false", placeholder: "6 + 4 =[[2]]. <answer>[[8]]</answer>", "aria-label": "Answer with holes" });
    this.task = select("Task", [["", "recognise"], ["none", "none"], ...named(options.tasks)], "");
    this.method = select("Method", named(methods), options.method);
    this.against = select("Compare with", [["", "nothing"], ...named(methods)], "");
    this.settings = options.settings.filter((one) => one.name !== "method").map((one) => ({ ...one, ...control(one, label(one.name)) }));
    this.problem = el("p", { class: "failure", role: "alert", hidden: true });
    this.go = el("button", { type: "submit", class: "go" }, "Search");
    this.halt = el("button", { type: "button", class: "quiet", hidden: true, onclick: stop }, "Stop");
    this.node = this.build(ask);
    this.method.input.addEventListener("change", () => this.loadMethod());
    this.task.input.addEventListener("change", () => this.loadDefaults());
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.node.requestSubmit();
      }
    });
    this.defaults = options.defaults[options.method];
    this.refresh();
    this.loadDefaults();
  }

  build(ask) {
    // What most people change; everything else is folded.
    const first = this.options.first.map((name) => this.settings.find((one) => one.name === name)).filter(Boolean);
    const group = (name, title) => el(
      "details",
      { class: "more" },
      el("summary", {}, title),
      el("div", { class: "settings" }, ...this.settings.filter((one) => one.group === name && !first.includes(one)).map((one) => one.node)),
    );
    return el(
      "form",
      { class: "ask", onsubmit: (event) => { event.preventDefault(); ask(); } },
      el("div", { class: "examples", role: "group", "aria-label": "Examples" }, ...this.options.examples.map((one) => this.example(one))),
      el(
        "div",
        { class: "line" },
        this.prompt,
        el("div", { class: "settings" }, this.task.node, this.method.node, this.against.node),
        el("div", { class: "buttons" }, this.go, this.halt),
      ),
      el(
        "details",
        { oninput: () => this.refresh() },
        el("summary", {}, "Settings"),
        el("div", { class: "settings" }, ...first.map((one) => one.node)),
        group("search", "More of the method"),
        group("decoding", "More of decoding"),
        el("details", { class: "more" }, el("summary", {}, "An answer with holes"), el("p", { class: "soft" }, "Each hole is a number of tokens; empty: the whole answer."), this.infill),
      ),
      this.problem,
    );
  }

  example({ task, prompt }) {
    const short = prompt.replace(/\s+/g, " ");
    return el(
      "button",
      { type: "button", class: "example", title: prompt, onclick: () => { this.prompt.value = prompt; this.infill.value = ""; this.task.input.value = task; this.node.requestSubmit(); } },
      el("b", {}, task),
      short.length > 44 ? `${short.slice(0, 42)}…` : short,
    );
  }

  // Another method starts from its own settings: what was typed for the last one is cleared.
  loadMethod() {
    for (const one of this.settings) if (one.group === "search") one.input.value = "";
    this.defaults = this.options.defaults[this.method.input.value];
    this.refresh();
    this.loadDefaults();
  }

  // What the model recommends for this method on this task; the server knows.
  async loadDefaults() {
    const asked = { method: this.method.input.value, task: this.task.input.value };
    const settings = await this.defaultsOf(asked.method, asked.task);
    if (asked.method !== this.method.input.value || asked.task !== this.task.input.value) return;
    this.defaults = settings;
    this.refresh();
  }

  async defaultsOf(method, task) {
    const { settings } = await resolved({ prompt: "?", method, ...(task ? { task } : {}) }).catch(() => ({ settings: this.options.defaults[method] }));
    return settings;
  }

  // A method of this server, else the one that is chosen.
  known(method) {
    return method in this.options.methods ? method : this.method.input.value;
  }

  // Recorded searches as requests. One brings the settings that are not the defaults here; two may
  // differ in a setting, for which the form has one field, so they bring none.
  async requests(headers) {
    const { tasks } = this.options;
    const bodies = headers.map(({ question, infill, task, settings }) => ({
      prompt: question,
      ...(infill ? { infill } : {}),
      ...(tasks.includes(task) ? { task } : {}),
      method: this.known(settings.method),
    }));
    const { settings } = headers[0];
    if (bodies.length > 1 || bodies[0].method !== settings.method) return bodies;
    const usual = await this.defaultsOf(bodies[0].method, bodies[0].task);
    return [{ ...Object.fromEntries(Object.entries(settings).filter(([name, value]) => value !== usual[name])), ...bodies[0] }];
  }

  // Fill the form with an earlier request.
  fill(bodies) {
    const [body, against] = bodies;
    this.prompt.value = body.prompt;
    this.infill.value = body.infill ?? "";
    this.task.input.value = body.task ?? "";
    this.method.input.value = this.known(body.method);
    this.against.input.value = against ? this.known(against.method) : "";
    this.loadMethod();
    for (const one of this.settings) {
      one.input.value = body[one.name] ?? against?.[one.name] ?? "";
    }
    this.refresh();
  }

  // Show the method's defaults and hide what it does not have. A text with holes may stand alone.
  refresh() {
    this.prompt.required = !this.infill.value.trim();
    const method = this.method.input.value;
    for (const one of this.settings) {
      one.suggest(this.defaults[one.name]);
      one.input.disabled = one.node.hidden = !this.uses(method, one);
    }
  }

  uses(method, setting) {
    return this.options.settings_of[method].includes(setting.name);
  }

  // One body per method; each has only the settings that its method uses.
  bodies() {
    const base = { prompt: this.prompt.value, ...(this.task.input.value ? { task: this.task.input.value } : {}), ...(this.infill.value.trim() ? { infill: this.infill.value } : {}) };
    const filled = this.settings.filter((one) => one.input.value !== "");
    const body = (method) => ({
      ...base,
      method,
      ...Object.fromEntries(filled.filter((one) => this.uses(method, one)).map((one) => [one.name, one.read()])),
    });
    return [this.method.input.value, this.against.input.value].filter(Boolean).map(body);
  }

  // Why a question would be wasted on a small model that knows only its own tasks; null if it is not.
  async unknown() {
    const [body] = this.bodies();
    if (body.task || body.infill) return null;
    const { known } = await resolved(body).catch(() => ({ known: true })); // the search will say what is wrong
    return known ? null : `${this.options.model} knows a few kinds of question, and this is not one of them. Pick an example above, or choose the task "none" to see what it writes all the same.`;
  }

  busy(is) {
    this.halt.hidden = !is;
  }

  complain(message) {
    this.problem.textContent = message ?? "";
    this.problem.hidden = !message;
  }
}

function label(name) {
  const words = name.replaceAll("_", " ");
  return LABELS[name] ?? words[0].toUpperCase() + words.slice(1);
}

function named(names) {
  return names.map((name) => [name, name]);
}

function select(text, choices, value, title) {
  const input = el("select", { "aria-label": text, title }, ...choices.map(([name, shown]) => el("option", { value: name, selected: name === value }, shown)));
  return { input, node: el("label", {}, el("span", {}, text), input) };
}

// An input for one declared setting. `suggest` shows the default, `read` gives the value.
function control({ name, type, description, enum: choices, minimum, maximum }, text) {
  if (choices) {
    const made = select(text, [["", "default"], ...named(choices)], "", description);
    made.input.name = name;
    const suggest = (value) => { made.input.options[0].textContent = value === null || value === undefined ? "default" : `${value} (default)`; };
    return { ...made, name, suggest, read: () => made.input.value };
  }
  const numeric = type === "integer" || type === "number";
  const input = el("input", { type: numeric ? "number" : "text", min: minimum, max: maximum, step: type === "integer" ? 1 : "any", inputmode: numeric ? "decimal" : null, name, title: description, "aria-label": text });
  const suggest = (value) => { input.placeholder = value ?? "default"; };
  return { name, input, suggest, read: () => (numeric ? Number(input.value) : input.value), node: el("label", {}, el("span", {}, text), input) };
}
