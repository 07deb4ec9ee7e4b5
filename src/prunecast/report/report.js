"use strict";
// Sorting: a click on a heading sorts by it, a second one the other way round.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const place = [...head.parentNode.children].indexOf(head);
    const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const key = row => {
      const cell = row.cells[place], value = cell.dataset.value ?? cell.textContent.trim();
      return value !== "" && isFinite(value) ? Number(value) : value;
    };
    const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    const rows = [...body.rows].sort((a, b) => way * order(key(a), key(b)));
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
    body.append(...rows);
  });
}
// Tooltips: under the pointer and by touch. In a picture the nearest mark counts: a finger is no needle.
const box = document.getElementById("tip");
function show(target, x, y) {
  box.textContent = target.dataset.tip;
  box.hidden = false;
  const left = Math.min(x + 12, innerWidth - box.offsetWidth - 4);
  const top = y + 18 + box.offsetHeight > innerHeight ? y - box.offsetHeight - 12 : y + 18;
  box.style.left = Math.max(4, left) + "px";
  box.style.top = Math.max(4, top) + "px";
}
const REACH = 14;
function away(mark, x, y) {
  const place = mark.getBoundingClientRect();
  return Math.hypot(Math.max(place.left - x, 0, x - place.right), Math.max(place.top - y, 0, y - place.bottom));
}
function nearest(picture, x, y) {
  let found = null, least = REACH;
  for (const mark of picture.querySelectorAll("[data-tip]")) {
    const distance = away(mark, x, y);
    if (distance < least) [found, least] = [mark, distance];
  }
  return found;
}
function follow(event) {
  const picture = event.target.closest("svg");
  const target = event.target.closest("[data-tip]") ?? (picture && nearest(picture, event.clientX, event.clientY));
  if (target) show(target, event.clientX, event.clientY); else box.hidden = true;
}
document.addEventListener("pointermove", follow);
document.addEventListener("click", follow);
document.addEventListener("scroll", () => { box.hidden = true; }, { passive: true });
document.addEventListener("keydown", event => { if (event.key === "Escape") box.hidden = true; });
