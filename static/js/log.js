// The live log of a build: follows, searches, wraps, and resumes by event id after a lost connection.

const view = document.querySelector("[data-log]");
const follow = document.getElementById("log-follow");
const search = document.getElementById("log-search");
const wrap = document.getElementById("log-wrap");
const status = document.getElementById("log-status");

const COLOURS = { 31: "red", 32: "green", 33: "yellow", 34: "blue", 35: "magenta", 36: "cyan" };

/** Text with ANSI colours becomes spans with classes; every other escape is dropped. */
function append(line, text) {
  let classes = [];
  // eslint-disable-next-line no-control-regex
  for (const part of text.split(/(\x1b\[[0-9;]*m)/)) {
    const codes = /^\x1b\[([0-9;]*)m$/.exec(part);
    if (codes) {
      for (const code of codes[1].split(";")) {
        if (code === "" || code === "0") classes = [];
        else if (code === "1") classes.push("ansi-bold");
        else if (code === "2") classes.push("ansi-dim");
        else if (COLOURS[code] || COLOURS[code - 60]) classes.push(`ansi-${COLOURS[code] ?? COLOURS[code - 60]}`);
      }
      continue;
    }
    // eslint-disable-next-line no-control-regex
    const clean = part.replace(/\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b-\x1f]/g, "");
    if (!clean) continue;
    const span = document.createElement("span");
    span.className = classes.join(" ");
    span.textContent = clean;
    line.append(span);
  }
}

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
source.addEventListener("error", () => (status.textContent = view.dataset.lost));
source.addEventListener("open", () => (status.textContent = view.dataset.live));
