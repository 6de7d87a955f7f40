// The page of one episode: the view, and the ways from it to others.
import { get } from "./api.js";
import { copyButton, fill, h, link } from "./dom.js";
import { episodeView, outcome } from "./episode_view.js";

export async function show(place, { run, file, number }, signal) {
  const { row, record, siblings, previous, next, path } = await get(["runs", run, "episodes", file, number], {}, signal);
  const at = (other) => link("run", run, "episode", file, other);
  const view = episodeView(record, {
    command: `openmanus-rl replay ${quoted(`${path}:${row.number}`)}`,
    actions: [
      previous && h("a", { class: "button", href: at(previous), rel: "prev", title: "Key [" }, "← previous"),
      next && h("a", { class: "button", href: at(next), rel: "next", title: "Key ]" }, "next →"),
      copyButton("Copy link", location.href, "The address of this episode"),
      siblings.length > 1 && h("a", { class: "button", href: link("run", run, "group", file, row.group) }, `Group of ${siblings.length}, side by side`),
      siblings.length > 1 && h("span", { class: "siblings" }, siblings.map((other) => {
        const { name, label, mark } = outcome(other);
        return h("a", { class: `sibling ${name}`, href: at(other.number), title: `sample ${other.sample}: ${label}`, "aria-current": other.number === row.number ? "true" : null }, mark);
      })),
    ],
  });
  fill(place, view);
  signal.addEventListener("abort", () => view.close());
  document.addEventListener("keydown", (event) => {
    if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "[" && previous) location.hash = at(previous);
    if (event.key === "]" && next) location.hash = at(next);
  }, { signal });
}

/** As one word of a shell. */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
