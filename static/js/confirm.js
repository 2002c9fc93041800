// A consequence is said before it happens: buttons with data-confirm ask first, in a dialog that says what will be.

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-confirm]");
  if (!button || button.dataset.confirmed) return;
  event.preventDefault();
  const dialog = document.createElement("dialog");
  dialog.className = "confirm";
  dialog.setAttribute("aria-label", button.textContent.trim());
  const text = document.createElement("p");
  text.textContent = button.dataset.confirm.replace(/\s+/g, " ");
  const yes = document.createElement("button");
  yes.className = "primary";
  yes.textContent = button.textContent.trim();
  const no = document.createElement("button");
  no.textContent = yes.textContent.startsWith("Cancel") ? "Back" : "Cancel";
  no.autofocus = true;
  yes.onclick = () => {
    button.dataset.confirmed = "yes";
    dialog.close();
    button.form.requestSubmit(button);
  };
  no.onclick = () => dialog.close();
  dialog.onclose = () => dialog.remove();
  dialog.append(text, yes, " ", no);
  document.getElementById("main").append(dialog);
  dialog.showModal();
});
