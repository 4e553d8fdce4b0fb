// Keeps an open page current: the console sends an event when it has changed, and it is fetched again.
"use strict";

let etag = `W/"${document.body.dataset.etag}"`;
const serverAheadMs = Number(document.body.dataset.nowMs) - Date.now();

async function refresh() {
  try {
    const answer = await fetch(location.href, { headers: { "If-None-Match": etag }, cache: "no-store" });
    if (answer.status === 304) return;
    etag = answer.headers.get("etag") || "";
    replaceMain(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    showOffline(true); // the console has ended, or the network has
  }
}

function showOffline(is) {
  document.getElementById("offline").hidden = !is;
}

// A hidden page listens to nothing, so that it costs the store no requests.
let events = null;

function listen() {
  events?.close();
  events = null;
  if (document.hidden) return;
  events = new EventSource(location.href);
  events.onopen = () => showOffline(false);
  events.onmessage = ({ data }) => data === etag || refresh();
  events.onerror = () => {
    showOffline(true);
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

function replaceMain(page) {
  const main = document.getElementById("main");
  const next = page.getElementById("main");
  if (!next) return;
  const opened = new Map([...main.querySelectorAll("details[id]")].map((box) => [box.id, box.open]));
  const focused = main.contains(document.activeElement) ? placeOf(document.activeElement) : null;
  const scrolled = [...main.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  const loaded = [...main.querySelectorAll("details[data-loaded]")];
  main.replaceChildren(...next.childNodes);
  showLater();
  for (const box of loaded) document.getElementById(box.id)?.replaceWith(box);
  main.querySelectorAll(".scroll").forEach((box, i) => (box.scrollLeft = scrolled[i] || 0));
  main.querySelectorAll("details[id]").forEach((box) => (box.open = opened.get(box.id) ?? box.open));
  document.title = page.title;
  if (focused) elementAt(focused)?.focus({ preventScroll: true });
}

// An element without an id is found again by its position in the nearest element that has one.
const FOCUSABLE = "a[href], summary, [tabindex]";

function placeOf(element) {
  const box = element.closest("[id]");
  return { id: box.id, position: [...box.querySelectorAll(FOCUSABLE)].indexOf(element) };
}

function elementAt({ id, position }) {
  const box = document.getElementById(id);
  return position < 0 ? box : box?.querySelectorAll(FOCUSABLE)[position];
}

// Rows beyond the first screens would delay the first paint; without a script the style sheet shows them.
function showLater() {
  for (const rows of document.querySelectorAll(".later")) rows.classList.add("shown");
}

// Rows of data are fetched when somebody opens their box, and then stay as they are.
async function load(box) {
  box.dataset.loaded = "";
  try {
    const answer = await fetch(box.dataset.src);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const content = page.getElementById("letters") || page.getElementById("main");
    box.querySelector("div").replaceChildren(...content.childNodes);
  } catch {
    delete box.dataset.loaded; // opening it again tries again
    showOffline(true);
  }
}

document.addEventListener("toggle", ({ target }) => {
  if (target.open && target.dataset.src && !("loaded" in target.dataset)) load(target);
}, true);

// Counts the ages, which alone do not make a page new. As `_age` of the console writes them.
function countAges() {
  const now = Date.now() + serverAheadMs;
  for (const time of document.querySelectorAll("time[data-ms]")) {
    const seconds = Math.max(0, Math.floor((now - Number(time.dataset.ms)) / 1000));
    const unit = [["d", 86400], ["h", 3600], ["min", 60]].find(([, length]) => seconds >= 2 * length);
    const text = unit ? `${Math.floor(seconds / unit[1])} ${unit[0]}` : `${seconds} s`;
    if (time.textContent !== text) time.textContent = text;
  }
}

// The arrow keys go to the epoch before and after.
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const id = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  if (id) document.getElementById(id)?.click();
});

document.addEventListener("visibilitychange", listen);
requestAnimationFrame(() => setTimeout(showLater));
listen();
setInterval(countAges, 1000);
