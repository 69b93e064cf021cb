// Live pages, keys and actions. Without this file, everything can be read.
"use strict";

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";
const prefix = meta("prefix");
const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function showTimes(root) {
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    const seconds = (Date.now() - at) / 1000;
    const [unit, size] = units.find(([, one]) => Math.abs(seconds) >= one) ?? ["s", 1];
    const number = `${Math.floor(Math.abs(seconds) / size)} ${unit}`;
    time.textContent = seconds >= 0 ? `${number} ago` : `in ${number}`;
    time.title = `${at.toLocaleString()} (here), ${time.dateTime} (UTC)`;
  }
}

// A page is fetched anew, and its content replaced, when a commit has changed something.
let due = null;
async function refresh() {
  due = null;
  const busy = document.querySelector("dialog[open]") || document.activeElement?.closest("main input");
  if (busy || document.hidden) { later(2000); return; }
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.redirected) { location.href = answer.url; return; }
    if (!answer.ok) { return; }
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const log = document.querySelector(".log");
    const below = log?.scrollTop;
    const focused = document.activeElement?.id;
    if (next) {
      document.querySelector("main").replaceChildren(...next.childNodes);
      showTimes(document);
      if (below !== undefined) { document.querySelector(".log")?.scrollTo(0, below); }
      if (focused) { document.getElementById(focused)?.focus(); }
    }
  } catch { /* the stream says that the server is away */ }
}
function later(wait) { due ??= setTimeout(refresh, wait); }

function listen() {
  const live = document.querySelector(".live");
  if (!live || !meta("live")) { return; }
  const stream = new EventSource(`${prefix}/v1/stream`);
  const say = (state, words) => { live.dataset.state = state; live.textContent = words; };
  let away = false;
  stream.onopen = () => {
    say("on", "live");
    if (away) { away = false; later(0); }
  };
  stream.addEventListener("away", () => say("away", "the catalog is away; trying again"));
  stream.addEventListener("commit", () => later(500));
  stream.addEventListener("reload", () => { say("on", "live"); later(0); });
  stream.onerror = () => { away = true; say("away", "the server is away; trying again"); };
}

function report(words, bad) {
  const said = document.querySelector(".said");
  said.textContent = words;
  said.classList.toggle("bad", bad);
}

async function act(button) {
  const answer = await fetch(prefix + button.dataset.path, {
    method: button.dataset.method,
    headers: {
      "content-type": "application/json",
      "x-csrf-token": meta("csrf"),
      "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()),
    },
    body: button.dataset.body || "{}",
  });
  const said = await answer.json().catch(() => ({}));
  report(answer.ok ? button.dataset.done : said.detail ?? "the request failed", !answer.ok);
  later(0);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) { return; }
  if (button.dataset.copy !== undefined) {
    navigator.clipboard?.writeText(button.dataset.copy);
    button.textContent = "copied";
  } else if (button.dataset.path) {
    const ask = document.getElementById("ask");
    ask.querySelector("p").textContent = button.dataset.ask;
    ask.querySelector(".primary").textContent = button.textContent.trim();
    ask.onclose = () => { if (ask.returnValue === "yes") { act(button); } };
    ask.returnValue = "";
    ask.showModal();
  }
});

const places = {
  o: "/", f: "/flow", d: "/datasets", i: "/inboxes", s: "/schedules", j: "/jobs", r: "/runs", w: "/watermarks",
  t: "/topics", a: "/apps",
};
let went = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) { return; }
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector(".search input")?.focus();
  } else if (event.key === "?") {
    document.getElementById("keys")?.showModal();
  } else if (event.key === "g") {
    went = Date.now();
  } else if (places[event.key] && Date.now() - went < 1500) {
    location.href = prefix + places[event.key];
  }
});

showTimes(document);
setInterval(() => showTimes(document), 15000);
listen();
