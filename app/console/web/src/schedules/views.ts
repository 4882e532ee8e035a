/** Saved views of the list: a name for a search and an order. They are kept in this browser; each is an address too. */

export interface View {
  name: string;
  q: string;
  sort: string;
}

export const MOST_VIEWS = 30;
const STORED_AS = "carillon-views";

/** Returns the views of a stored text; what is not one of them is left out. */
export function viewsOf(text: string | null): View[] {
  try {
    const found = JSON.parse(text ?? "[]") as unknown;
    return Array.isArray(found) ? found.filter(isView).slice(0, MOST_VIEWS) : [];
  } catch {
    return [];
  }
}

function isView(value: unknown): value is View {
  const view = value as Partial<View> | null;
  return [view?.name, view?.q, view?.sort].every((one) => typeof one === "string");
}

/** Adds a view, in the place of one with the same name. */
export function withView(views: View[], view: View): View[] {
  const isThere = views.some((one) => one.name === view.name);
  return (isThere ? views.map((one) => (one.name === view.name ? view : one)) : [...views, view]).slice(-MOST_VIEWS);
}

export const withoutView = (views: View[], name: string): View[] => views.filter((one) => one.name !== name);

export const readViews = (): View[] => viewsOf(localStorage.getItem(STORED_AS));
export const storeViews = (views: View[]): void => localStorage.setItem(STORED_AS, JSON.stringify(views));
