// The episodes of one task at one step, side by side: turn by turn, and where they part.
import { get } from "./api.js";
import { fill, h, link } from "./dom.js";
import { outcomeBadge } from "./episode_view.js";
import { number, plural, signed } from "./format.js";
import { block, hint, inline } from "./text.js";

export async function show(place, { run, file, group }, signal) {
  const { episodes } = await get(["runs", run, "groups", file, group], {}, signal);
  if (!episodes.length) throw new Error(`There is no group ${group} in ${file}.`);
  const longest = Math.max(...episodes.map(({ turns }) => turns.length));
  const ways = branches(episodes.map(({ turns }) => turns.map((turn) => turn.action ?? `\u0000${turn.text}`)), longest);
  const parting = ways.findIndex((way) => new Set(way).size > 1);
  fill(place,
    h("div", { class: "title-row" }, h("h1", {}, inline(episodes[0].row.item_id, 80)), h("span", { class: "muted" }, `${plural(episodes.length, "episode")} of one task, step ${number(episodes[0].row.step)}`)),
    h("p", { class: "muted" }, parting < 0 ? "They all went the same way." : parting === 0 ? "They part at the first turn." : `They go together for ${plural(parting, "turn")} and part at turn ${parting + 1}.`,
      " Turns with one letter did the same so far."),
    h("details", {}, h("summary", {}, "The task"), block(episodes[0].task?.prompt ?? "", 2000)),
    h("div", { class: "scroll" }, h("table", { class: "group" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Turn"), episodes.map(({ row }) => h("th", { scope: "col" },
        h("a", { href: link("run", run, "episode", row.file, row.number) }, `sample ${row.sample}`), " ", outcomeBadge(row), h("div", { class: "muted" }, `return ${signed(row.episode_return)} · `, inline(row.stop_reason, 30)))))),
      h("tbody", {}, ways.map((way, index) => h("tr", { class: index === parting ? "parting" : null }, h("th", { scope: "row" }, String(index + 1)),
        episodes.map(({ turns }, column) => cell(turns[index], way[column]))))))));
}

/**
 * For each turn and episode the number of its way: episodes that did the same so far share it. The first to go on from a
 * shared history keeps its number; whoever does otherwise gets a new one.
 */
export function branches(actions, longest) {
  const numbers = new Map();
  const continued = new Set();
  const histories = actions.map(() => "");
  let fresh = 0;
  return Array.from({ length: longest }, (_, turn) => actions.map((taken, index) => {
    if (turn >= taken.length) return null;
    const before = histories[index];
    histories[index] += `\u0001${taken[turn]}`;
    if (!numbers.has(histories[index])) {
      numbers.set(histories[index], numbers.has(before) && !continued.has(before) ? numbers.get(before) : fresh++);
      continued.add(before);
    }
    return numbers.get(histories[index]);
  }));
}

/** A, B, … Z, A1, B1, …: there are more ways than colours. */
function letter(way) {
  return String.fromCharCode(65 + (way % 26)) + (way < 26 ? "" : Math.floor(way / 26));
}

function cell(turn, way) {
  if (!turn) return h("td", { class: "ended" }, "");
  return h("td", { class: `way way-${way % 8}`, dataset: { way } },
    h("div", { class: "done" }, h("span", { class: "way-name" }, letter(way)), turn.action === null ? h("span", { class: "below" }, "no action") : inline(turn.action, 80), turn.invalid_reason && h("span", { class: "below", title: hint(turn.invalid_reason) }, " ✗"),
      turn.reward ? h("span", { class: turn.reward > 0 ? "above" : "below" }, ` ${signed(turn.reward)}`) : null),
    h("details", {}, h("summary", {}, "said and seen"), block(turn.text, 800), h("hr"), block(turn.observation, 800)));
}
