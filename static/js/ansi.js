// Output of programs as text with colours, and nothing else of what an escape could do.

const COLOURS = { 31: "red", 32: "green", 33: "yellow", 34: "blue", 35: "magenta", 36: "cyan" };

/** Text with ANSI colours becomes spans with classes; every other escape is dropped. */
export function append(line, text) {
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
