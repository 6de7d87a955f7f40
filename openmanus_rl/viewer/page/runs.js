// All runs of the directory.
import { get, told, watch } from "./api.js";
import { fill, h, link } from "./dom.js";
import { ago, number, percent } from "./format.js";
import { inline, named, plain } from "./text.js";

export async function show(place, _, signal) {
  const chosen = new Set();
  const draw = async () => {
    const { root, one_run: oneRun, runs } = await get(["runs"], {}, signal);
    if (oneRun && runs.length === 1) {
      location.replace(link("run", runs[0].name));
      return;
    }
    fill(place, h("div", { class: "title-row" }, h("h1", {}, "Runs"), h("span", { class: "muted" }, inline(root, 200))),
      runs.length ? table(runs, chosen) : empty(root));
  };
  await draw();
  const again = told(draw, place, signal);
  watch([], again, signal);
  const timer = setInterval(again, 5000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function table(runs, chosen) {
  const compare = h("a", { class: "button", href: "#/compare" }, "Compare");
  const update = () => {
    compare.textContent = chosen.size > 1 ? `Compare ${chosen.size} runs` : "Choose runs to compare";
    compare.href = "#/compare?" + [...chosen].map((name) => `run=${encodeURIComponent(name)}`).join("&");
    compare.classList.toggle("quiet", chosen.size < 2);
  };
  update();
  const newest = [...runs].sort((a, b) => (b.changed ?? 0) - (a.changed ?? 0));
  return [h("div", { class: "actions" }, compare), h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["", "Run", "", "Held-out success", "Step", "World", "Algorithm", "Changed"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, newest.map((run) => h("tr", {},
      h("td", {}, h("input", { type: "checkbox", "aria-label": plain(`Compare ${run.name}`), checked: chosen.has(run.name),
        onchange: (event) => { event.target.checked ? chosen.add(run.name) : chosen.delete(run.name); update(); } })),
      h("th", { scope: "row" }, h("a", { href: link("run", run.name) }, named(run.name))),
      h("td", {}, status(run.status)),
      run.error ? h("td", { class: "caveat", colspan: 5 }, inline(run.error, 300)) : figures(run))))))];
}

function figures(run) {
  return [
    h("td", {}, successBar(run.success)),
    h("td", { class: "figure" }, number(run.step) + (run.steps ? ` / ${number(run.steps)}` : "")),
    h("td", {}, inline(run.env ?? "–", 40)),
    h("td", {}, inline(run.algorithm ?? "–", 40)),
    h("td", { class: "muted" }, ago(run.changed)),
  ];
}

export function status(name) {
  return h("span", { class: `status ${name}` }, h("span", { class: "dot", "aria-hidden": "true" }), name);
}

/** A rate with its interval, drawn on the range from 0 to 1. */
export function successBar(success) {
  if (!success) return h("span", { class: "muted" }, "not measured");
  return h("span", { class: "success-bar", title: `95 % interval ${percent(success.low)} to ${percent(success.high)}, ${success.n} episodes` },
    h("span", { class: "track", "aria-hidden": "true" },
      h("span", { class: "interval", style: { left: `${100 * success.low}%`, width: `${100 * (success.high - success.low)}%` } }),
      h("span", { class: "point", style: { left: `${100 * success.rate}%` } })),
    h("b", {}, percent(success.rate)), h("span", { class: "muted" }, ` n=${success.n}`));
}

function empty(root) {
  return h("div", { class: "empty" }, h("p", {}, "There is no run here yet."),
    h("p", {}, "Start one, and it appears: ", h("code", {}, "./train_grpo.sh")), h("p", { class: "muted" }, inline(root, 300)));
}
