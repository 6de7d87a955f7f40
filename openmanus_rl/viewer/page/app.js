// The frame of the page: which view an address means, and the bar above it.
import { fill, h, link } from "./dom.js";
import { inline, named } from "./text.js";

const VIEWS = [
  [/^$/, () => import("./runs.js"), []],
  [/^compare$/, () => import("./compare.js"), []],
  [/^run\/([^/]+)$/, () => import("./run.js"), ["run"]],
  [/^run\/([^/]+)\/episodes$/, () => import("./episodes.js"), ["run"]],
  [/^run\/([^/]+)\/episode\/([^/]+)\/(\d+)$/, () => import("./episode.js"), ["run", "file", "number"]],
  [/^run\/([^/]+)\/group\/([^/]+)\/(-?\d+)$/, () => import("./group.js"), ["run", "file", "group"]],
];
const main = document.getElementById("main");
const top_ = document.getElementById("top");
let leaving = new AbortController();

function theme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  window.dispatchEvent(new Event("theme"));
}

function themeButton() {
  const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  return h("button", { type: "button", class: "button quiet", title: "Light or dark", "aria-label": "Light or dark",
    onclick: () => {
      const next = isDark() ? "light" : "dark";
      localStorage.setItem("theme", next);
      theme(next);
    } }, "◐");
}

function bar(where) {
  const here = (name) => (where.view === name ? "page" : null);
  fill(top_,
    h("a", { class: "brand", href: "#/" }, h("img", { src: "/page/mark.svg", alt: "", width: 22, height: 22 }), h("span", {}, "OpenManus-RL")),
    where.run && h("span", { class: "crumb" }, named(where.run)),
    h("nav", { "aria-label": "Views" },
      where.run && h("a", { href: link("run", where.run), "aria-current": here("run") }, "Run"),
      where.run && h("a", { href: link("run", where.run, "episodes"), "aria-current": here("episodes") ?? here("episode") ?? here("group") }, "Episodes"),
      h("a", { href: where.run ? `#/compare?run=${encodeURIComponent(where.run)}` : "#/compare", "aria-current": here("compare") }, "Compare")),
    h("span", { class: "live", title: "News comes as the run writes it" }, h("span", { class: "dot" }), h("span", { class: "live-text" })),
    themeButton());
}

/** A part of the address; as it stands, if it is not one that the page made. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const words = new URLSearchParams(query ?? "");
  const found = VIEWS.map(([pattern, load, names]) => [pattern.exec(path), load, names]).find(([match]) => match);
  const parameters = Object.fromEntries((found?.[2] ?? []).map((name, index) => [name, decoded(found[0][index + 1])]));
  const view = path === "compare" ? "compare" : path.split("/")[2] ?? (path ? "run" : "runs");
  bar({ view, run: parameters.run });
  document.title = [parameters.run, "OpenManus-RL"].filter(Boolean).join(" · ");
  const place = h("div", { class: `view ${view}` }, h("p", { class: "loading" }, "Reading …"));
  main.replaceChildren(place);
  window.scrollTo(0, 0);
  try {
    if (!found) throw new Error("There is no such page.");
    const module = await found[1]();
    if (!signal.aborted) await module.show(place, { ...parameters, words }, signal);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    fill(place, h("div", { class: "notice bad", role: "alert" }, h("strong", {}, "This cannot be shown. "), inline(error.message, 600)),
      h("p", {}, h("a", { href: "#/" }, "All runs")));
  }
}

theme(localStorage.getItem("theme"));
window.addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its address would be that of a view
  main.focus();
});
show();
