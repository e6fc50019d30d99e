// Talking to the server: what it offers, and one search as a stream of events.

const KEY = "s3dlm-key";

export function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // A page opened from disk may have no storage; then it simply forgets.
  }
}

export function setKey(key) {
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // As above.
  }
}

function headers() {
  const key = sessionStorage.getItem(KEY);
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Refused(response.status, body?.error?.message ?? `The server said ${response.status}.`);
}

export async function offered() {
  return (await checked(await fetch("/v1/options", { headers: headers() }))).json();
}

export async function resolved(body) {
  return (await checked(await fetch("/v1/settings", { method: "POST", headers: headers(), body: JSON.stringify(body) }))).json();
}

export async function exampleTrace() {
  return (await checked(await fetch("/viewer/example.jsonl"))).text();
}

export async function watchSearch(body, take, signal) {
  const response = await checked(
    await fetch("/v1/search", { method: "POST", headers: headers(), body: JSON.stringify(body), signal }),
  );
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) take(JSON.parse(line));
  }
}
