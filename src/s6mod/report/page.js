"use strict";
// Tabs: without this script all sections stand one below the other, and the links lead to them.
const links = [...document.querySelectorAll("nav a")];
const sections = links.map((link) => document.querySelector(link.getAttribute("href")));

function show(place) {
  sections.forEach((section, at) => {
    section.hidden = at !== place;
    links[at].setAttribute("aria-selected", String(at === place));
    links[at].tabIndex = at === place ? 0 : -1;
  });
}

function showAddressed() {
  show(Math.max(0, links.findIndex((link) => link.getAttribute("href") === location.hash)));
}

document.body.classList.add("tabs");
document.querySelector("nav").setAttribute("role", "tablist");
links.forEach((link, at) => {
  link.setAttribute("role", "tab");
  link.setAttribute("aria-controls", sections[at].id);
  link.id = `tab-${sections[at].id}`;
  sections[at].setAttribute("role", "tabpanel");
  sections[at].setAttribute("aria-labelledby", link.id);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    history.replaceState(null, "", link.getAttribute("href"));
    show(at);
  });
  link.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const next = links[(at + step + links.length) % links.length];
      next.click();
      next.focus();
    }
  });
});
addEventListener("hashchange", showAddressed);
showAddressed();

// Figures as SVG files. Colours are written in them, so a saved figure is the light one.
document.querySelectorAll("button.svg").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => {
    const figure = button.closest("figure");
    const drawn = figure.querySelector("svg");
    const link = document.createElement("a");
    link.download = `${figure.dataset.name}.svg`;
    link.href = drawn
      ? URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(drawn)], { type: "image/svg+xml" }))
      : figure.querySelector("img").src;
    link.click();
    if (drawn) setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
});
