// A command from the session's page, followed while it runs. Without this the form's answer is a page.

import { append } from "./ansi.js";

const panel = document.getElementById("run");
const result = document.getElementById("result");
const state = document.getElementById("result-state");
const how = document.getElementById("result-how");
const problem = document.getElementById("result-problem");
const output = document.getElementById("result-output");
const stop = document.getElementById("result-stop");
const MOST_LINES = 5000;

/** The events of a stream of them; a comment is none. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const found = /^event: (\w+)\ndata: (.*)$/s.exec(block);
      if (found) yield { name: found[1], data: JSON.parse(found[2]) };
    }
  }
}

/** Text that comes in any pieces becomes lines; a carriage return starts its line over. */
class Lines {
  constructor() {
    this.open = {};
    this.dropped = false;
  }

  add(kind, text) {
    const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    const pieces = text.split("\n");
    pieces.forEach((piece, index) => {
      if (piece === "" && index === pieces.length - 1) return;
      const line = (this.open[kind] ??= this.begin(kind));
      line.text += piece;
      line.element.replaceChildren();
      append(line.element, line.text.split("\r").filter(Boolean).pop() ?? "");
      if (index < pieces.length - 1) delete this.open[kind];
    });
    while (output.childElementCount > MOST_LINES) this.drop();
    if (atEnd) output.scrollTop = output.scrollHeight;
  }

  begin(kind) {
    const element = document.createElement("div");
    element.className = kind;
    output.append(element);
    return { element, text: "" };
  }

  drop() {
    if (!this.dropped) {
      this.dropped = true;
      this.begin("info").element.textContent = result.dataset.cut;
      output.prepend(output.lastChild);
    }
    output.children[1].remove();
  }
}

function show(tone, text, detail = "") {
  const badge = document.createElement("span");
  badge.className = `badge ${tone}`;
  badge.textContent = text;
  state.replaceChildren(badge);
  how.textContent = detail;
}

function complain(text) {
  problem.hidden = false;
  problem.firstElementChild.textContent = text;
  show("bad", result.dataset.failed);
}

async function run(form) {
  const leaving = new AbortController();
  stop.onclick = () => leaving.abort();
  const buttons = [...panel.querySelectorAll("form button")];
  for (const button of buttons) button.disabled = true;
  output.replaceChildren();
  output.hidden = problem.hidden = true;
  result.hidden = stop.hidden = false;
  show("info busy", result.dataset.running);
  const lines = new Lines();
  let ended = false;
  try {
    const answer = await fetch(panel.dataset.stream, { method: "POST", body: new FormData(form), signal: leaving.signal });
    // Signed out, or without the right: the page itself says it best.
    if (!answer.ok || answer.redirected) return form.submit();
    for await (const { name, data } of eventsOf(answer.body)) {
      if (name === "problem") complain(data.text);
      else if (name === "exit") show(data.ok ? "good" : "bad", data.ok ? result.dataset.done : result.dataset.failed, data.text);
      else {
        output.hidden = false;
        lines.add(name === "start" ? "info" : name, name === "start" ? `$ ${data.command}\n` : data.text);
      }
      ended ||= name === "problem" || name === "exit";
    }
    if (!ended) complain(result.dataset.lost);
  } catch (error) {
    if (error.name === "AbortError") show("bad", stop.textContent);
    else complain(result.dataset.lost);
  } finally {
    stop.hidden = true;
    for (const button of buttons) button.disabled = false;
  }
}

for (const form of panel.querySelectorAll("form")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(form);
  });
}
