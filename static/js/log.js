// The live log of a build: follows, searches, wraps, and resumes by event id after a lost connection.

import { append } from "./ansi.js";

const view = document.querySelector("[data-log]");
const follow = document.getElementById("log-follow");
const search = document.getElementById("log-search");
const wrap = document.getElementById("log-wrap");
const status = document.getElementById("log-status");

function matches(line) {
  const term = search.value.trim().toLowerCase();
  line.classList.toggle("hidden", term !== "" && !line.textContent.toLowerCase().includes(term));
}

function show(event) {
  const { stream, text } = JSON.parse(event.data);
  for (const row of text.replace(/\n$/, "").split("\n")) {
    const line = document.createElement("div");
    line.className = stream;
    append(line, row.split("\r").filter(Boolean).pop() ?? "");
    matches(line);
    view.append(line);
  }
  if (follow.checked) view.scrollTop = view.scrollHeight;
}

search.addEventListener("input", () => view.querySelectorAll("div").forEach(matches));
wrap.addEventListener("change", () => view.classList.toggle("wrap", wrap.checked));
view.addEventListener("scroll", () => {
  const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
  if (!atEnd) follow.checked = false;
});
follow.addEventListener("change", () => {
  if (follow.checked) view.scrollTop = view.scrollHeight;
});

const source = new EventSource(view.dataset.log);
source.addEventListener("line", show);
source.addEventListener("end", () => {
  source.close();
  status.textContent = view.dataset.ended;
  document.body.dispatchEvent(new CustomEvent("build-ended"));
});
// The server breaks off every minute; only what stays away is lost.
let away;
source.addEventListener("error", () => {
  const say = () => (status.textContent = view.dataset.lost);
  if (source.readyState === EventSource.CLOSED) say();
  else away ??= setTimeout(say, 3000);
});
source.addEventListener("open", () => {
  clearTimeout(away);
  away = undefined;
  status.textContent = view.dataset.live;
});
