// Small behaviours that HTML alone lacks. Every page works without them, but for live logs.

/** Buttons with data-dialog="id" open a native dialog; data-close closes the one around them. */
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-dialog]");
  if (opener) {
    event.preventDefault();
    document.getElementById(opener.dataset.dialog)?.showModal();
  }
  const closer = event.target.closest("[data-close]");
  if (closer) {
    event.preventDefault();
    closer.closest("dialog")?.close();
  }
});

/** A drop zone hands dropped files to the file input in it. */
for (const zone of document.querySelectorAll(".drop")) {
  const input = zone.querySelector("input[type=file]");
  for (const type of ["dragover", "dragleave", "drop"]) {
    zone.addEventListener(type, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", type === "dragover");
    });
  }
  zone.addEventListener("drop", (event) => {
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

/** A folder upload tells the server each file's path, which the file name alone lacks. */
for (const input of document.querySelectorAll("input[webkitdirectory]")) {
  input.addEventListener("change", () => {
    const paths = [...input.files].map((file) => file.webkitRelativePath);
    input.form.elements.paths.value = JSON.stringify(paths);
  });
}

/** What scrolls can be scrolled by keys: it takes the focus, unless something in it does. */
function reachable() {
  for (const part of document.querySelectorAll(".table-wrap, pre, .tabs")) {
    const scrolls = part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight;
    if (scrolls && !part.querySelector("a, button, input, select, summary")) part.tabIndex = 0;
  }
}
reachable();
addEventListener("resize", reachable);
document.addEventListener("htmx:load", reachable);
