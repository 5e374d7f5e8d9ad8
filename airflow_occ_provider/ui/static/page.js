"use strict";
const REFRESH_MS = 10000;
// Airflow's sandbox lets no link leave the frame, so its router is told the new address.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (!link || window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  window.parent.history.pushState(null, "", new URL(link.getAttribute("href"), document.baseURI).href);
  window.parent.dispatchEvent(new PopStateEvent("popstate"));
});
// The theme that the user chose in Airflow, which may differ from that of the system.
const outside = window.parent.document.documentElement;
function followTheme() {
  const theme = ["dark", "light"].find((one) => outside.classList.contains(one));
  document.documentElement.style.colorScheme = theme ?? "";
}
if (window.parent !== window) {
  followTheme();
  new MutationObserver(followTheme).observe(outside, { attributeFilter: ["class"] });
}
async function refresh() {
  if (document.visibilityState === "visible" && getSelection().isCollapsed) {
    const text = await fetch(location.href).then((got) => (got.ok ? got.text() : "")).catch(() => "");
    const page = new DOMParser().parseFromString(text, "text/html").getElementById("page");
    const href = document.activeElement?.getAttribute("href");
    const scrolled = [...document.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    document.getElementById("unrefreshed").hidden = page !== null;
    if (page) document.getElementById("page").replaceWith(page);
    if (page && href) page.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
    if (page) page.querySelectorAll(".wide").forEach((one, n) => (one.scrollLeft = scrolled[n] ?? 0));
  }
  setTimeout(refresh, REFRESH_MS);
}
setTimeout(refresh, REFRESH_MS);
