// Live parts of a page (hx-trigger="half-minute from:body") ask again every half minute, but not behind another tab.

const EVERY_MS = 30_000;
let asked = Date.now();

function ask() {
  if (document.hidden || Date.now() - asked < EVERY_MS) return;
  asked = Date.now();
  document.body.dispatchEvent(new Event("half-minute"));
}
setInterval(ask, 1000);
document.addEventListener("visibilitychange", ask);

/** What was unfolded stays so. */
let unfolded = [];
document.addEventListener("htmx:beforeSwap", (event) => {
  // Whoever is signed out meanwhile gets the sign-in page: as a page, not as a part of this one.
  if (new URL(event.detail.xhr.responseURL).pathname !== event.detail.pathInfo.requestPath.split("?")[0]) {
    event.detail.shouldSwap = false;
    location.reload();
    return;
  }
  unfolded = [...event.detail.target.querySelectorAll("details[open][id]")].map((part) => part.id);
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
});
