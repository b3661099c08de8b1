// Times in the reader's zone: the one they chose in their settings, else the browser's.

const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
const zone = document.documentElement.dataset.timeZone || own;
const format = new Intl.DateTimeFormat(document.documentElement.lang, {
  dateStyle: "medium",
  timeStyle: "short",
  timeZone: zone,
});

/** The server shows times in the browser's zone too, from the next page on. */
if (own && !document.cookie.split("; ").includes(`time_zone=${own}`)) {
  document.cookie = `time_zone=${own}; path=/; max-age=31536000; samesite=lax`;
}

function localTimes(scope) {
  for (const element of scope.querySelectorAll("time[datetime]")) {
    const when = new Date(element.dateTime);
    const local = format.format(when);
    element.title = `${local} (${zone}) · ${when.toISOString().slice(0, 16).replace("T", " ")} UTC`;
    if (element.hasAttribute("data-absolute")) element.textContent = local;
  }
}
localTimes(document);
document.addEventListener("htmx:load", (event) => localTimes(event.detail.elt));
