// What makes lists quicker to use. Everything works without it, by the buttons and one box a row.

const boxes = () => [...document.querySelectorAll('input[name="row"][form="bulk"]')];

/** A URL names only the filters that hold. */
document.addEventListener("formdata", (event) => {
  if (event.target.id !== "filters") return;
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});

/** How many rows are chosen, and the box that chooses them all. */
function showChosen() {
  const all = document.querySelector("[data-choose-all]");
  const note = document.querySelector("#bulk .chosen");
  if (!all || !note) return;
  const whole = document.querySelector('#bulk input[name="all"]')?.checked;
  const chosen = boxes().filter((box) => box.checked).length;
  all.checked = chosen > 0 && chosen === boxes().length;
  all.indeterminate = chosen > 0 && !all.checked;
  note.hidden = chosen === 0 || whole;
  note.textContent = `${note.dataset.chosen} ${chosen}`;
}

let last = null;

/** A shifted click chooses everything from the last one to this one. */
document.addEventListener("click", (event) => {
  if (!event.target.matches('input[name="row"][form="bulk"]')) return;
  const rows = boxes();
  const [from, to] = [rows.indexOf(last), rows.indexOf(event.target)].sort((a, b) => a - b);
  if (event.shiftKey && from >= 0) for (const box of rows.slice(from, to)) box.checked = event.target.checked;
  last = event.target;
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-choose-all]")) for (const box of boxes()) box.checked = event.target.checked;
  if (event.target.closest("#bulk, .choose")) showChosen();
});

/** What was swapped in is told to those who don't see it. */
document.addEventListener("htmx:afterSettle", () => {
  const status = document.getElementById("list-status");
  const count = document.getElementById("count");
  if (status && count) status.textContent = count.textContent;
  showChosen();
});
addEventListener("pageshow", showChosen);
