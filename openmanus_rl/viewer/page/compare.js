// Several runs over each other: their curves, what they were told, and whether their success differs by more than noise.
import { get, watch } from "./api.js";
import { chart, seriesColour } from "./charts.js";
import { fill, h, link } from "./dom.js";
import { number, percent, shown } from "./format.js";
import { column } from "./run.js";
import { status, successBar } from "./runs.js";
import { inline } from "./text.js";

const CHARTS = [
  ["Held-out success", "val/success/rate", percent],
  ["Training success", "success/rate", percent],
  ["Return", "episode/return/mean"],
  ["Turns an episode", "num_turns/mean"],
  ["Sampled tokens an episode", "response_length/mean"],
  ["Invalid actions", "episode/invalid_actions", percent],
  ["Entropy", "actor/entropy"],
  ["KL of the update", "actor/ppo_kl"],
  ["Sampled tokens a second", "perf/sampled_tokens_per_second"],
];

export async function show(place, { words }, signal) {
  const { runs } = await get(["runs"], {}, signal);
  const names = runs.map((run) => run.name);
  const chosen = words.getAll("run").filter((name) => names.includes(name)).slice(0, 8);
  const state = { byTime: false, figures: [], signal };
  const picker = h("div", { class: "picker", role: "group", "aria-label": "Runs to compare" }, names.map((name) => {
    const index = chosen.indexOf(name);
    return h("button", { type: "button", class: "button pick", "aria-pressed": String(index >= 0), onclick: () => {
      const next = index >= 0 ? chosen.filter((other) => other !== name) : [...chosen, name];
      location.hash = "#/compare?" + next.map((other) => `run=${encodeURIComponent(other)}`).join("&");
    } }, index >= 0 && h("span", { class: "key", style: { background: seriesColour(index) } }), inline(name, 60));
  }));
  const body = h("div");
  fill(place, h("h1", {}, "Compare"), picker, body);
  if (chosen.length < 2) {
    fill(body, h("div", { class: "empty" }, h("p", {}, names.length < 2 ? "There is only one run here: open the directory of runs to compare some." : "Choose two runs or more.")));
    return;
  }
  let drawn = null;
  const draw = async () => {
    const [compared, ...data] = await Promise.all([
      get(["compare"], { run: chosen }, signal),
      ...chosen.map((name) => get(["runs", name, "metrics"], { name: [...CHARTS.map(([, metric]) => metric), "val/success/low", "val/success/high"], points: 500 }, signal)),
    ]);
    drawn = JSON.stringify(Object.fromEntries(compared.runs.map((run) => [run.name, run.state])));
    state.figures.forEach((figure) => figure.close());
    const grid = h("div", { class: "charts" });
    const hero = h("div", { class: "hero" });
    const axis = h("button", { type: "button", class: "button", "aria-pressed": String(state.byTime), onclick: () => { state.byTime = !state.byTime; draw(); } }, state.byTime ? "by time" : "by step");
    fill(body, verdicts(compared), h("div", { class: "toolbar" }, axis), hero, grid, configTable(compared));
    state.figures = CHARTS.map(([title, metric, format], index) => overlay(index ? grid : hero, title, metric, format, chosen, data, state, index === 0)).filter(Boolean);
  };
  await draw();
  watch(chosen, (states) => { if (JSON.stringify(states) !== drawn) draw(); }, signal);
  window.addEventListener("theme", draw, { signal });
  signal.addEventListener("abort", () => state.figures.forEach((figure) => figure.close()));
}

function overlay(place, title, metric, format, names, data, state, isHero) {
  const begun = (part) => (state.byTime ? Math.min(...part.time.filter((time) => time !== null)) : 0);
  const lines = names.map((name, index) => {
    const { x, y } = column(data[index], metric, state.byTime);
    return { label: name, x: state.byTime ? x.map((time) => time - begun(data[index])) : x, y, colour: seriesColour(index), format, width: isHero ? 2.25 : 1.5, dots: isHero && x.length < 40 };
  }).filter((line) => line.x.length);
  if (!lines.length) return null;
  if (isHero) lines.push(...lines.flatMap((line) => interval(line, data[names.indexOf(line.label)], state, begun)));
  const bands = isHero ? lines.filter((line) => line.edge === "low").map((line) => [lines.indexOf(line), lines.indexOf(line) + 1, line.of]) : [];
  return chart(place, { bands, title, note: state.byTime ? "seconds since each began" : null, lines, height: isHero ? 260 : 190, range: isHero ? () => [0, 1] : undefined });
}

/** The lower and the upper edge of a run's interval. */
function interval(line, data, state, begun) {
  return ["low", "high"].map((edge) => {
    const { x, y } = column(data, `val/success/${edge}`, state.byTime);
    return { label: edge, edge, of: line, x: state.byTime ? x.map((time) => time - begun(data)) : x, y, colour: line.colour, hidden: true };
  });
}

function verdicts({ runs, baseline }) {
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["Run", "", baseline ? `Against ${baseline}` : "Difference", "Last held-out success", "At step", ""].map((name) => h("th", { scope: "col" }, inline(name, 60))))),
    h("tbody", {}, runs.map((run, index) => h("tr", {},
      h("th", { scope: "row" }, h("span", { class: "key", style: { background: seriesColour(index) } }), h("a", { href: link("run", run.name) }, inline(run.name, 60))),
      verdict(run, baseline), h("td", {}, successBar(run.success)), h("td", { class: "figure" }, number(run.success?.step ?? null)), h("td", {}, status(run.status)))))));
}

function verdict(run, baseline) {
  if (run.name === baseline) return [h("td"), h("td", { class: "muted" }, "the baseline")];
  if (!run.difference) return [h("td"), h("td", { class: "muted" }, "not measured")];
  const { rate, low, high, outside_noise: isOutside } = run.difference;
  const points = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(100 * value).toFixed(1)}`;
  return [
    h("td", {}, h("span", { class: `badge ${isOutside ? (rate > 0 ? "success" : "miss") : "even"}` }, isOutside ? (rate > 0 ? "better, outside the noise" : "worse, outside the noise") : "within the noise")),
    h("td", { class: "difference", title: "Newcombe's 95 % interval of the difference: the noise of these episodes, not that of other seeds" }, h("b", {}, `${points(rate)} points`), h("span", { class: "muted" }, ` [${points(low)}, ${points(high)}]`),
      run.measured_otherwise.length > 0 && h("div", { class: "caveat" }, `not measured alike: ${run.measured_otherwise.join("; ")}`)),
  ];
}

function configTable({ runs, config }) {
  return h("details", { open: config.length <= 30 }, h("summary", {}, `Where their configs differ (${config.length})`),
    config.length ? h("div", { class: "scroll" }, h("table", { class: "list" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Key"), runs.map((run) => h("th", { scope: "col" }, inline(run.name, 60))))),
      h("tbody", {}, config.map(({ key, values }) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, inline(key, 80))), values.map((value) => h("td", {}, inline(shown(value), 120)))))))) : h("p", { class: "empty" }, "Nowhere."));
}
