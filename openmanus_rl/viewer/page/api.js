// What the server says: answers, and news of change.
import { fill, h } from "./dom.js";
import { inline } from "./text.js";

/** A path below /api with a query; a list of values becomes several words of the query. */
export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const entry of [value].flat()) if (entry !== "" && entry !== null && entry !== undefined) words.append(name, entry);
  }
  const text = words.toString();
  return "/api/" + path.map(encodeURIComponent).join("/") + (text ? `?${text}` : "");
}

export async function get(path, query, signal) {
  const response = await fetch(address(path, query), { signal }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The server does not answer; is openmanus-rl view still running?");
  });
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  const answer = isJson ? await response.json() : { error: await response.text() };
  if (!response.ok) throw new Error(answer.error || `the server answered ${response.status}`);
  return answer;
}

/** `work` as a handler: what goes wrong in it stands at the top of `place` until it goes well again. */
export function told(work, place, signal) {
  const notice = h("div", { class: "notice bad stale", role: "alert" });
  let said = null;
  return async (...given) => {
    try {
      await work(...given);
      notice.remove();
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      if (notice.isConnected && said === error.message) return; // once is enough for who listens to the page
      said = error.message;
      fill(notice, h("strong", {}, "What is shown here may be old. "), inline(error.message, 600));
      place.prepend(notice);
    }
  };
}

/** Call `tell(state)` now and whenever the named runs change, until `signal` ends; a page that nobody sees waits. */
export function watch(runs, tell, signal) {
  let source = null;
  const listen = () => {
    source?.close();
    if (document.hidden || signal.aborted) return; // a browser has six connections for all tabs of a page
    source = new EventSource(address(["changes"], { run: runs }));
    source.addEventListener("message", (event) => {
      document.documentElement.dataset.live = "yes";
      tell(JSON.parse(event.data));
    });
    source.addEventListener("error", () => { document.documentElement.dataset.live = "no"; });
  };
  listen();
  document.addEventListener("visibilitychange", listen, { signal });
  signal.addEventListener("abort", () => {
    source?.close();
    delete document.documentElement.dataset.live;
  });
}
