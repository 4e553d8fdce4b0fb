// Keeps an open page current: fetches it again and replaces its content, if that has changed.
"use strict";

const refreshMs = Number(document.body.dataset.refreshMs);
let etag = "";

async function refresh() {
  if (document.hidden) return;
  const offline = document.getElementById("offline");
  try {
    const headers = etag ? { "If-None-Match": etag } : {};
    const answer = await fetch(location.href, { headers, cache: "no-store" });
    offline.hidden = true;
    if (answer.status === 304) return;
    etag = answer.headers.get("etag") || "";
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    replaceMain(page);
  } catch {
    offline.hidden = false; // the console has ended, or the network has
  }
}

function replaceMain(page) {
  const main = document.getElementById("main");
  const next = page.getElementById("main");
  if (!next || next.innerHTML === main.innerHTML) return;
  const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
  const scrolled = [...main.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  main.replaceChildren(...next.childNodes);
  main.querySelectorAll(".scroll").forEach((box, i) => (box.scrollLeft = scrolled[i] || 0));
  document.title = page.title;
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// The arrow keys go to the epoch before and after.
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const id = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  if (id) document.getElementById(id)?.click();
});

document.addEventListener("visibilitychange", refresh);
if (refreshMs > 0) setInterval(refresh, refreshMs);
