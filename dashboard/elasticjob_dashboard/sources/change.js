// Asks before a change of a job, requests it, and tells what the server answered: in the table of all jobs, and on the
// page of a job that is served with the user's own rights.
const CHANGES = {
  suspend: ["Suspend", "Its members save, and its pods are deleted. Resumed, it continues from there."],
  resume: ["Resume", "It gets its members again and continues from the saved state."],
  scale: ["Scale", ""],
  stop: ["Stop", "Its members save, and it ends. It cannot be resumed."],
};
let changing = null;

// A button for each change that the user may make. `job` says where they are requested.
function offer(tools, job) {
  tools.job = job;
  if (tools.dataset.offers === job.offers.join()) return;
  tools.dataset.offers = job.offers.join();
  tools.replaceChildren();
  for (const what of job.offers) {
    const button = put(tools, "button", CHANGES[what][0]);
    button.type = "button";
    button.setAttribute("aria-label", `${CHANGES[what][0]} ${job.namespace}/${job.name}`);
    button.addEventListener("click", () => askChange(what, tools.job));
  }
}

function askChange(what, job) {
  const [name, text] = CHANGES[what], bounds = [job.least ? `at least ${job.least}` : "", job.most === null ? "" : `at most ${job.most}`];
  changing = { what, job };
  write(by("change-title"), `${name} ${job.namespace}/${job.name}?`);
  write(by("change-text"), text || [`Members of role ${job.role}`, ...bounds].filter(Boolean).join(", "));
  write(by("change-do"), name);
  write(by("change-problem"), "");
  by("change-do").disabled = false;
  by("size-label").hidden = what !== "scale";
  by("size").required = what === "scale";
  by("size").value = job.size ?? "";
  by("change").showModal();
  if (what === "scale") by("size").select();
}

async function requestChange() {
  const { what, job } = changing, body = { uid: job.uid };
  if (what === "scale") body.size = by("size").valueAsNumber;
  by("change-do").disabled = true;
  try {
    const answer = await fetch(`${job.path}${what}`, {
      method: "POST", headers: { ...authorized(), "content-type": "application/json" }, body: JSON.stringify(body) });
    const found = await answer.json();
    if (found.problem) throw new Error(found.problem);
    by("did").hidden = false;
    write(by("did"), `${job.namespace}/${job.name}: ${found.done}`);
    by("change").close();
  } catch (error) {
    write(by("change-problem"), error.message);
    by("change-do").disabled = false;
  }
}

by("change-form").addEventListener("submit", event => {
  event.preventDefault();
  requestChange();
});
by("change-not").addEventListener("click", () => by("change").close());
