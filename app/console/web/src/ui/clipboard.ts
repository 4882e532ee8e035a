/** Copies a text; returns false if the browser does not let it. Pages without TLS have no clipboard of their own. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

function copySelected(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "visually-hidden";
  // Outside of an open dialog nothing can be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  return isCopied;
}
