// Live pages, keys and actions. Without this file, everything can be read.
"use strict";

document.documentElement.classList.add("scripted");
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
let asking = new AbortController();
let leaving = false;
async function refresh() {
  due = null;
  if (leaving) { return; }
  const busy = document.querySelector("dialog[open]") || document.activeElement?.closest("main input");
  if (busy || document.hidden) { later(2000); return; }
  try {
    asking = new AbortController();
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, signal: asking.signal });
    if (answer.redirected) { location.href = answer.url; return; }
    if (!answer.ok) { return; }
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const log = document.getElementById("log");
    const below = log?.scrollTop;
    const focused = document.activeElement?.id;
    const said = document.querySelector(".said");
    if (next) {
      // A log that is followed goes on where it is, and what an action has said stays.
      if (log?.dataset.follow && next.querySelector("#log[data-follow]")) { next.querySelector("#log").replaceWith(log); }
      next.querySelector(".said")?.replaceWith(said);
      document.querySelector("main").replaceChildren(...next.childNodes);
      showTimes(document);
      begin();
      if (below !== undefined) { document.getElementById("log")?.scrollTo(0, below); }
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

// A page that could not be made, because the catalog is away, is asked for again.
async function askAgain() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (answer?.ok) { location.reload(); } else { setTimeout(askAgain, 3000); }
}
if (meta("again")) { setTimeout(askAgain, 3000); }

function report(words, bad) {
  const said = document.querySelector(".said");
  said.textContent = words;
  said.classList.toggle("bad", bad);
}

async function send(method, path, body) {
  const headers = {
    "x-csrf-token": meta("csrf"),
    "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()),
  };
  const sent = method === "DELETE" ? {} : { body: body || "{}" };
  if (sent.body) { headers["content-type"] = "application/json"; }
  try {
    const answer = await fetch(prefix + path, { method, headers, ...sent });
    return [answer.ok, await answer.json().catch(() => ({}))];
  } catch {
    return [false, { detail: "the server is away; nothing is known about the request" }];
  }
}

// A refusal with its next step, which most messages hold already.
const tell = ({ detail = "the request failed", hint = "" }) => (detail.includes(hint) ? detail : `${detail}; ${hint}`);

async function act(button) {
  const { method, path, body, done, then } = button.dataset;
  button.disabled = true;
  // A thing that is deleted has no page to fetch anew: its list is the next place.
  if (then) { leaving = true; asking.abort(); }
  const [ok, said] = await send(method, path, body);
  button.disabled = false;
  report(ok ? done : tell(said), !ok);
  if (ok && then) { location.href = prefix + then; return; }
  leaving = false;
  later(0);
}

// A form sends its fields that are filled in. A secret in the answer is shown once, and kept nowhere.
async function submit(form) {
  const fields = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
  const [ok, said] = await send(form.dataset.method, form.dataset.path, JSON.stringify(fields));
  report(ok ? form.dataset.done : tell(said), !ok);
  const secret = document.getElementById("secret");
  if (ok && said.secret && secret) {
    secret.querySelector("code").textContent = said.secret;
    secret.querySelector("button").dataset.copy = said.secret;
    secret.hidden = false;
    form.reset();
  } else if (ok) { later(0); }
}
document.addEventListener("submit", (event) => {
  if (event.target.dataset.path) { event.preventDefault(); submit(event.target); }
});

// The log: found lines are shown alone; new lines come while the run is at work.
function filterLog() {
  const wanted = document.getElementById("find-in-log")?.value.toLowerCase() ?? "";
  let found = 0;
  for (const line of document.querySelectorAll("#log > span")) {
    line.hidden = wanted !== "" && !line.textContent.toLowerCase().includes(wanted);
    found += line.hidden ? 0 : 1;
  }
  const said = document.getElementById("log-found");
  if (said) { said.textContent = wanted ? `${found} lines` : ""; }
}
const mostLines = 2000;
async function follow(log) {
  log.dataset.following = "yes";
  try {
    const answer = await fetch(prefix + log.dataset.follow, { headers: { accept: "text/plain" } });
    if (!answer.ok) { return; }
    log.replaceChildren();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) { break; }
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      const end = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      for (const text of lines.slice(-mostLines)) {
        const line = document.createElement("span");
        line.textContent = `${text}\n`;
        if (/error|exception|traceback|fatal/i.test(text)) { line.className = "bad"; }
        log.append(line);
      }
      while (log.childElementCount > mostLines) { log.firstElementChild.remove(); }
      if (end) { log.scrollTop = log.scrollHeight; }
      filterLog();
    }
  } catch { delete log.dataset.following; /* the stream of commits says that the server is away */ }
}
document.addEventListener("input", (event) => { if (event.target.id === "find-in-log") { filterLog(); } });

// Tables are sorted by their headings. The URL says by which (`sort=Table:Column:down`), so that a link shows the same.
const sizes = { B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
function keyOf(row, place) {
  const cell = row.cells[place];
  const time = cell?.querySelector("time")?.dateTime;
  const text = cell?.textContent.trim() ?? "";
  const [, number, unit] = /^([+-]?[\d,]+(?:\.\d+)?) ?([KMGT]?B)?$/.exec(text) ?? [];
  return time ?? (number ? Number(number.replaceAll(",", "")) * (sizes[unit] ?? 1) : text === "–" ? "" : text);
}
const compare = (one, other) => (typeof one === "number" && typeof other === "number"
  ? one - other : String(one).localeCompare(String(other), undefined, { numeric: true }));
function sortTable(table, place, down) {
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [keyOf(row, place), row]);
  // Rows without a value come last, whatever the order.
  keyed.sort(([one], [other]) => (one === "") - (other === "") || (down ? compare(other, one) : compare(one, other)));
  body.replaceChildren(...keyed.map(([, row]) => row));
  for (const [at, head] of [...table.tHead.rows[0].cells].entries()) {
    if (at === place) { head.ariaSort = down ? "descending" : "ascending"; } else { head.removeAttribute("aria-sort"); }
  }
}
function offerSorting() {
  const [wanted, column, way] = (new URL(location).searchParams.get("sort") ?? "").split(":");
  for (const [number, table] of document.querySelectorAll("main .panel > table").entries()) {
    const name = table.parentElement.getAttribute("aria-label") ?? "";
    if (!table.tHead || table.tBodies[0].rows.length < 2) { continue; }
    for (const [place, head] of [...table.tHead.rows[0].cells].entries()) {
      const label = head.textContent.trim();
      if (head.querySelector(".unseen, button") || !label) { continue; }
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "sort", textContent: label, id: `sort-${number}-${place}` });
      button.title = `Sort this page by ${label}`;
      button.onclick = () => {
        const down = head.ariaSort === "ascending";
        const url = new URL(location);
        url.searchParams.set("sort", `${name}:${label}:${down ? "down" : "up"}`);
        history.replaceState(null, "", url);
        sortTable(table, place, down);
        keepSorting();
      };
      head.replaceChildren(button);
      if (name === wanted && label === column) { sortTable(table, place, way === "down"); }
    }
  }
  keepSorting();
}
function keepSorting() {
  const sort = new URL(location).searchParams.get("sort");
  for (const link of sort ? document.querySelectorAll("main .pages a") : []) {
    const url = new URL(link.href);
    url.searchParams.set("sort", sort);
    link.href = url;
  }
}

// What a page needs when it was loaded, or its content replaced.
function begin() {
  offerSorting();
  const log = document.getElementById("log");
  if (log?.dataset.follow && !log.dataset.following) { follow(log); }
  filterLog();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) { return; }
  if (button.dataset.copy !== undefined) {
    navigator.clipboard?.writeText(button.dataset.copy);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  } else if (button.dataset.path) {
    const ask = document.getElementById("ask");
    ask.querySelector("p").textContent = button.dataset.ask;
    const command = `tidemill ${button.dataset.command}`;
    ask.querySelector(".cli span").textContent = `$ ${command}`;
    ask.querySelector(".cli button").dataset.copy = command;
    ask.querySelector(".primary").textContent = button.textContent.trim();
    ask.onclose = () => { if (ask.returnValue === "yes") { act(button); } };
    ask.returnValue = "";
    ask.showModal();
  }
});

const places = {
  o: "/", f: "/flow", d: "/datasets", i: "/inboxes", s: "/schedules", j: "/jobs", r: "/runs", w: "/watermarks",
  t: "/topics", a: "/apps", l: "/alerts",
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
begin();
document.querySelector(".flow .chosen")?.scrollIntoView({ block: "nearest", inline: "center" });
setInterval(() => showTimes(document), 15000);
listen();
