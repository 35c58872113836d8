// Keeps a page current by one stream, a line for each change; see elasticjob_dashboard/stream.py.
// The page has the functions show(changed), which draws, and news(), which tells whether it is current.
const RETRY = 2000, SILENT = 30000; // milliseconds
let present = {}, problem = "";
// The token comes from the address' fragment, which browsers send to nobody, and stays in this page. One server
// has many pages of jobs for one token, which this tab of the browser keeps for them.
const isOneOfMany = document.documentElement.dataset.many === "yes";
let token = decodeURIComponent((location.hash.match(/token=([^&]+)/) || ["", ""])[1]);
if (token) window.history.replaceState(null, "", location.pathname + location.search);
if (isOneOfMany) token ? sessionStorage.setItem("token", token) : token = sessionStorage.getItem("token") || "";
const authorized = () => token ? { authorization: `Bearer ${token}` } : {};

function ask(why) {
  token = "";
  if (isOneOfMany) sessionStorage.removeItem("token");
  problem = why;
  by("ask").hidden = false;
  by("main").hidden = true;
  news();
}

async function follow() {
  for (;;) {
    const silence = new AbortController();
    try {
      // `elasticjob dashboard NAME` adds the token itself; other servers, asked without one, answer 401.
      const options = { headers: authorized(), cache: "no-store", signal: silence.signal };
      let timer = setTimeout(() => silence.abort(), SILENT);
      const alive = () => { clearTimeout(timer); timer = setTimeout(() => silence.abort(), SILENT); };
      try {
        let answer = await fetch("stream", options);
        if (answer.status === 401) return ask(token ? "This token is not accepted." : "");
        if (answer.ok) await readLines(answer.body, line => { alive(); if (line) took(JSON.parse(line)); });
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

async function readLines(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach(take);
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
  if (isOneOfMany) sessionStorage.setItem("token", token);
  by("token").value = "";
  follow();
});
