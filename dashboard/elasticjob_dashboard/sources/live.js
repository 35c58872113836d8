// Keeps the page current by one stream, a line for each change; see elasticjob_dashboard/stream.py.
const RETRY = 2000, SILENT = 30000; // milliseconds
let present = {}, problem = "";
// The token comes from the address' fragment, which browsers send to nobody, and stays in this page.
let token = decodeURIComponent((location.hash.match(/token=([^&]+)/) || ["", ""])[1]);
if (token) window.history.replaceState(null, "", location.pathname);

function show(changed) {
  Object.assign(present, changed);
  const state = present;
  if (!state.progress) return;
  by("ask").hidden = true;
  by("main").hidden = false;
  summary(state);
  if (changed.samples || changed.plans || changed.events) overTime(state.samples, state.plans, state.events);
  if (changed.report) goodput(state.report);
  if (changed.members) members(state.members, state.job, state.namespace);
  if (changed.datasets) shards(state.datasets);
  if (changed.autoscaling) scaling(state.autoscaling);
  if (changed.plans || changed.events) plansAndEvents(state.plans, state.events);
}

function news() {
  const asOf = present.asOf, target = by("news");
  target.className = problem ? "late" : asOf ? "" : "live";
  write(target, problem ? "no news" : asOf ? `as of ${moment(asOf)}` : "live");
  by("problem").hidden = !problem;
  write(by("problem"), problem);
}

function ask(why) {
  token = "";
  problem = why;
  news();
  by("ask").hidden = false;
  by("main").hidden = true;
}

async function follow() {
  for (;;) {
    const silence = new AbortController();
    try {
      // `elasticjob dashboard` adds the token itself; the master, asked without one, answers 401.
      const options = { headers: token ? { authorization: `Bearer ${token}` } : {}, cache: "no-store", signal: silence.signal };
      let timer = setTimeout(() => silence.abort(), SILENT);
      const alive = () => { clearTimeout(timer); timer = setTimeout(() => silence.abort(), SILENT); };
      try {
        let answer = await fetch("stream", options);
        if (answer.status === 401) return ask(token ? "This is not the token of this job." : "");
        if (answer.ok) await readLines(answer.body, alive);
        else {
          // Too many pages are open, or a proxy passes no streams.
          answer = await fetch("status", options);
          if (!answer.ok) throw new Error((await answer.text()).slice(0, 500) || `the answer is ${answer.status}`);
          took(await answer.json());
        }
      } finally { clearTimeout(timer); }
    } catch (error) {
      problem = `No news: ${silence.signal.aborted ? "nothing has come for 30 s" : error.message}. Trying again.`;
      news();
    }
    await new Promise(done => setTimeout(done, RETRY));
  }
}

async function readLines(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) took(JSON.parse(line));
  }
}
function took({ problem: why, ...changed }) {
  if (why !== undefined || problem) problem = why ? `No news: ${why}. Trying again.` : "";
  show(changed);
  news();
}

by("ask").addEventListener("submit", event => {
  event.preventDefault();
  token = by("token").value.trim();
  by("token").value = "";
  follow();
});
// Charts have the colors of the theme in which they were drawn.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  past.shape = "";
  belief.plot?.destroy();
  belief.plot = null;
  show(present);
});
follow();
