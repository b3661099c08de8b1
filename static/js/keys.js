// Single keys: "/" goes to the search, "?" to the help on this page. Esc leaves a search. They can be switched
// off on the help page, since speech input and some keyboards press keys that nobody meant.

const STORED = "single-keys";

function enabled() {
  try {
    return localStorage.getItem(STORED) !== "off";
  } catch {
    return true;
  }
}

function typing(target) {
  return target.isContentEditable || target.matches("input:not([type=checkbox], [type=radio]), textarea, select, .xterm *");
}

document.addEventListener("keydown", (event) => {
  const search = document.querySelector("main input[type=search]");
  if (event.key === "Escape" && search && event.target === search) {
    document.getElementById("main").focus();
    return;
  }
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || typing(event.target)) return;
  if (document.querySelector("dialog[open]") || !enabled()) return;
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "?") {
    document.querySelector(".help-link")?.click();
  }
});

const box = document.getElementById("single-keys");
if (box) {
  box.checked = enabled();
  box.closest("[hidden]").hidden = false;
  box.addEventListener("change", () => localStorage.setItem(STORED, box.checked ? "on" : "off"));
}
