// Times in the reader's zone: the one they chose in their settings, else the browser's.

const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
const zone = document.documentElement.dataset.timeZone || own;
const format = formatter({ dateStyle: "medium", timeStyle: "short" });
const timeOnly = formatter({ timeStyle: "short" });

function formatter(style) {
  return new Intl.DateTimeFormat(document.documentElement.lang, { ...style, timeZone: zone });
}

// The server shows times in the browser's zone too, from the next page on.
if (own && !document.cookie.split("; ").includes(`time_zone=${own}`)) {
  document.cookie = `time_zone=${own}; path=/; max-age=31536000; samesite=lax`;
}

function localTimes(scope) {
  for (const element of scope.querySelectorAll("time[datetime]")) {
    const when = new Date(element.dateTime);
    const local = format.format(when);
    element.title = `${local} (${zone}) · ${when.toISOString().slice(0, 16).replace("T", " ")} UTC`;
    const absolute = element.dataset.absolute;
    if (absolute !== undefined) element.textContent = absolute === "time" ? timeOnly.format(when) : local;
  }
}
localTimes(document);
document.addEventListener("htmx:load", (event) => localTimes(event.detail.elt));
