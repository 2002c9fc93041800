// Code and config are dropped or chosen; the form is sent once, with how far it is, and what is wrong stays beside it.

import { change, showChecked } from "../editor.js";

const form = document.getElementById("create");
const field = form.elements.config;
const zip = document.getElementById("zip");
const folder = document.getElementById("folder");
const said = document.getElementById("code-chosen");
const none = document.getElementById("code-none");
const atFirst = said.textContent;
const NEVER = /(^|\/)(__pycache__|\.git|\.terraform|\.idea|\.vscode|\.vs|\.ipynb_checkpoints|__MACOSX)(\/|$)|\.py[co]$|(^|\/)\.DS_Store$/;
let files = []; // [{ path, file }] of a chosen folder; empty with a zip or nothing
let archive = null;

const mib = (bytes) => (bytes < 2 ** 20 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`);

function choose(found, zipped) {
  files = found.filter(({ path }) => !NEVER.test(path));
  archive = zipped;
  const size = zipped ? zipped.size : files.reduce((sum, { file }) => sum + file.size, 0);
  said.textContent = zipped ? `${zipped.name}, ${mib(size)}` : files.length ? `${files.length} file${files.length === 1 ? "" : "s"}, ${mib(size)}` : atFirst;
  none.hidden = !zipped && !files.length;
  const roots = new Set(files.map(({ path }) => (path.includes("/") ? path.split("/", 1)[0] : "")));
  const cut = roots.size === 1 ? [...roots][0].length + (roots.has("") ? 0 : 1) : 0;
  form.dataset.paths = files.map(({ path }) => path.slice(cut)).join("\n");
  form.dispatchEvent(new Event("change"));
}

folder.addEventListener("change", () => {
  zip.value = "";
  choose([...folder.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })), null);
});
zip.addEventListener("change", () => { folder.value = ""; choose([], zip.files[0] ?? null); });
none.addEventListener("click", () => { zip.value = ""; folder.value = ""; choose([], null); folder.focus(); });
document.getElementById("config-file").addEventListener("change", async ({ target }) => {
  if (target.files[0]) await openConfig(target.files[0]);
  target.value = "";
});

async function openConfig(file) {
  change(field, await file.text());
}

// --- dropping, anywhere on the page ---

const isFile = (event) => event.dataTransfer?.types.includes("Files");
document.addEventListener("dragover", (event) => { if (isFile(event)) { event.preventDefault(); document.body.classList.add("dropping"); } });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
document.addEventListener("drop", async (event) => {
  if (!isFile(event)) return;
  event.preventDefault();
  document.body.classList.remove("dropping");
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const plain = [...event.dataTransfer.files].map((file) => ({ path: file.name, file }));
  const found = entries.length ? (await Promise.all(entries.map((entry) => walked(entry, "")))).flat() : plain;
  const alone = found.length === 1 && !found[0].path.includes("/");
  const zipped = found.find(({ path }) => /\.zip$/i.test(path) && !path.includes("/"));
  const configs = found.filter(({ path }) => /\.ya?ml$/i.test(path) && !path.includes("/"));
  if (configs.length === 1) await openConfig(configs[0].file);
  if (zipped) { zip.value = ""; folder.value = ""; choose([], zipped.file); return; }
  if (alone && configs.length === 1) return;
  const rest = found.filter((each) => !configs.includes(each));
  if (rest.length) choose(rest, null);
});

/** All files in and below an entry, with their paths. */
async function walked(entry, above) {
  const path = above ? `${above}/${entry.name}` : entry.name;
  if (NEVER.test(path)) return [];
  if (entry.isFile) return [{ path, file: await new Promise((done, failed) => entry.file(done, failed)) }];
  const reader = entry.createReader();
  const inside = [];
  for (;;) { // a reader answers in batches, the last one empty
    const batch = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!batch.length) break;
    inside.push(...batch);
  }
  return (await Promise.all(inside.map((each) => walked(each, path)))).flat();
}

// --- sending ---

const button = document.getElementById("submit");
const sending = document.getElementById("sending");
const refused = document.getElementById("refused");

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (button.disabled) return;
  button.disabled = true;
  refused.hidden = true;
  const body = new FormData(form);
  body.delete("zip");
  if (archive) body.append("zip", archive, archive.name);
  if (files.length) {
    body.append("manifest", JSON.stringify(files.map(({ path, file }) => ({ path, size: file.size, mtime: file.lastModified }))));
    body.append("contents", new Blob(files.map(({ file }) => file)), "contents");
  }
  send(body);
});

function send(body) {
  const request = new XMLHttpRequest();
  request.open("POST", location.href);
  request.setRequestHeader("Accept", "application/json");
  request.responseType = "json";
  progress("Sending", 0);
  request.upload.onprogress = ({ loaded, total }) => progress(`Sending ${mib(loaded)} of ${mib(total)}`, total ? loaded / total : 0);
  request.upload.onload = () => progress("Sent. The server is unpacking and checking it", 1);
  request.onerror = () => fail("The server could not be reached, so the submission may or may not have arrived. Submit again: it is created only once.");
  request.onload = () => {
    if (request.response?.href) { location.assign(request.response.href); return; }
    if (request.response?.checked) { showChecked(request.response.checked); fail("Nothing was submitted. The errors are listed next to the config."); return; }
    fail(request.status === 413 ? "Nothing was submitted: that is more than the server accepts." : `Nothing was submitted: the server answered ${request.status}.`);
  };
  request.send(body);
}

function progress(words, share) {
  sending.hidden = false;
  sending.querySelector(".bar > span").style.width = `${Math.round(100 * share)}%`;
  sending.lastElementChild.textContent = words;
}

function fail(sentence) {
  sending.hidden = true;
  button.disabled = false;
  refused.hidden = false;
  refused.textContent = sentence;
  refused.scrollIntoView({ block: "nearest" });
}

// A page that comes back by the Back button has sent its key already: what is submitted then is another experiment.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
