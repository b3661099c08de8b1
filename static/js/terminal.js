// A terminal in the session's sandbox: xterm.js at this end of a WebSocket, a shell at the other.
//
// The shell outlives the line. A line that breaks is laid again, to the same shell; one that was ended
// says why, and waits for Enter.

const root = document.getElementById("terminal");
const screen = root.querySelector(".terminal-screen");
const status = document.getElementById("terminal-status");
const start = document.getElementById("terminal-start");
const end = document.getElementById("terminal-end");
const large = document.getElementById("terminal-large");
const reader = document.getElementById("terminal-reader");
const words = JSON.parse(document.getElementById("terminal-words").textContent);

const ACK_BYTES = 64 * 1024;
const DELAYS_MS = [300, 1000, 2000, 4000, 8000, 15000];
const PALETTE = {
  black: "#33423b", red: "#ff9d96", green: "#7be0ac", yellow: "#f2c46d", blue: "#9cc4ff", magenta: "#e3b0ff",
  cyan: "#86e1ea", white: "#d6e6de", brightBlack: "#8fa39a", brightRed: "#ffbab5", brightGreen: "#a2f0c8",
  brightYellow: "#ffdd9a", brightBlue: "#c0daff", brightMagenta: "#eecbff", brightCyan: "#b0f0f5", brightWhite: "#ffffff",
};

const KEYS = {
  escape: "\x1b", tab: "\t", interrupt: "\x03", end: "\x04",
  up: "\x1b[A", down: "\x1b[B", right: "\x1b[C", left: "\x1b[D",
};

const encoder = new TextEncoder();
let terminal, fit, socket;
let waiting = true; // for Enter
let attempts = 0;
let hasShell = false;
let unacknowledged = 0;

/**
 * xterm.js writes style elements and style attributes, which the page's policy forbids. What the policy lets
 * scripts do is to fill style sheets of their own and to set styles by the object model, so that is what
 * both become, for whatever of it asks the document for an element.
 */
const make = document.createElement.bind(document);
document.createElement = (name, options) => {
  const element = make(name === "style" ? "template" : name, options);
  if (name === "style") {
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
  } else if (name === "span") {
    element.setAttribute = (attribute, value) => {
      if (attribute === "style") element.style.cssText = value;
      else Element.prototype.setAttribute.call(element, attribute, value);
    };
  }
  return element;
};

function theme() {
  const { backgroundColor, color } = getComputedStyle(screen);
  return { ...PALETTE, background: backgroundColor, foreground: color, cursor: color, selectionBackground: "#4a6b5d" };
}

async function build() {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import(root.dataset.xterm), import(root.dataset.fit)]);
  for (const part of root.querySelectorAll(".terminal-open")) part.hidden = false;
  terminal = new Terminal({
    fontFamily: getComputedStyle(screen).fontFamily,
    fontSize: 13,
    lineHeight: 1.15,
    minimumContrastRatio: 4.5,
    scrollback: 5000,
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    screenReaderMode: reader.checked,
    theme: theme(),
  });
  fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(screen);
  fit.fit();
  new ResizeObserver(() => requestAnimationFrame(() => fit.fit())).observe(screen);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (terminal.options.theme = theme()));
  terminal.onResize(({ cols, rows }) => wish({ size: [cols, rows] }));
  terminal.onData((text) => type(encoder.encode(text), text));
  terminal.onBinary((text) => type(Uint8Array.from(text, (character) => character.charCodeAt(0)), text));
  terminal.attachCustomKeyEventHandler(isForShell);
}

/** Copy, paste and the way out are the browser's. */
function isForShell(event) {
  if (event.type !== "keydown" || !event.ctrlKey) return true;
  if (event.shiftKey && event.code === "Space") {
    event.preventDefault();
    end.focus();
    return false;
  }
  if (event.code === "KeyV" || (event.code === "KeyC" && terminal.hasSelection())) return false;
  return true;
}

function isOpen() {
  return socket?.readyState === WebSocket.OPEN;
}

function wish(what) {
  if (isOpen()) socket.send(JSON.stringify(what));
}

function type(bytes, text) {
  if (waiting) {
    if (text.includes("\r")) connect();
  } else if (isOpen()) {
    socket.send(bytes);
  }
}

function say(text) {
  status.textContent = text;
}

/** On the screen as well, where the person looks. */
function tell(text) {
  say(text);
  // eslint-disable-next-line no-control-regex
  terminal.write(`\r\n\x1b[0;2m${text.replace(/[\x00-\x1f\x7f-\x9f]/g, " ")}\x1b[0m\r\n`);
}

function connect({ again = false } = {}) {
  waiting = false;
  unacknowledged = 0;
  if (!again) {
    attempts = 0;
    hasShell = false;
    say(words.connecting);
  }
  const address = new URL(root.dataset.socket, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  address.search = new URLSearchParams({ cols: terminal.cols, rows: terminal.rows, ...(again && { again: 1 }) });
  const line = (socket = new WebSocket(address));
  line.binaryType = "arraybuffer";
  line.addEventListener("message", ({ data }) => {
    if (typeof data !== "string") return draw(line, data);
    const told = JSON.parse(data);
    if (told.what === "end") ended(told);
    else heard(told);
  });
  line.addEventListener("close", () => {
    if (line === socket && !waiting && !comeBack()) {
      waiting = true;
      tell(words.unreachable);
    }
  });
}

/** Lay the line again in a moment, if there is a shell to come back to and it was not tried too often. */
function comeBack() {
  if (!hasShell || attempts >= DELAYS_MS.length) return false;
  say(words.lost);
  setTimeout(() => connect({ again: true }), DELAYS_MS[attempts++]);
  return true;
}

/** What was drawn is acknowledged; the other end sends no more than so much ahead of that. */
function draw(line, data) {
  terminal.write(new Uint8Array(data), () => {
    unacknowledged += data.byteLength;
    if (unacknowledged < ACK_BYTES || line !== socket) return;
    wish({ ack: unacknowledged });
    unacknowledged = 0;
  });
}

function heard({ what, same, left_s: left }) {
  if (what === "open") {
    attempts = 0;
    hasShell = true;
    say(same ? words.same : words.open);
    wish({ size: [terminal.cols, terminal.rows] });
  } else say((words[what] ?? "").replace("{left}", left));
}

function ended({ why, text, code }) {
  const line = socket;
  socket = undefined;
  line.close();
  if (why === "broken" && comeBack()) return;
  waiting = why !== "denied";
  if (why === "exit" && code === null) why = "exit_unknown";
  tell([text, words[why].replace("{code}", code)].filter(Boolean).join(" "));
}

start.hidden = false;
start.addEventListener("click", async () => {
  start.disabled = true;
  try {
    await build();
  } catch (error) {
    say(words.unloaded);
    start.disabled = false;
    throw error;
  }
  start.hidden = true;
  connect();
  terminal.focus();
});
end.addEventListener("click", () => {
  wish({ kill: true });
  terminal.focus();
});
for (const button of root.querySelectorAll("[data-key]")) {
  button.addEventListener("click", () => {
    terminal.input(KEYS[button.dataset.key]);
    terminal.focus();
  });
}
large.addEventListener("click", async () => {
  await (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen());
  terminal.focus();
});
reader.checked = localStorage.getItem("terminal-reader") === "1";
reader.addEventListener("change", () => {
  localStorage.setItem("terminal-reader", reader.checked ? "1" : "0");
  terminal.options.screenReaderMode = reader.checked;
});
