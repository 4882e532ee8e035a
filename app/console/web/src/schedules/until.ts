/** Times of the field for the end of a pause, which is in this browser's zone. */

const two = (value: number) => String(value).padStart(2, "0");

/** Writes an instant as the field for local times wants it. */
export function inputOf(at: string | number | undefined, withSeconds = false): string {
  if (at === undefined) return "";
  const date = new Date(at);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const seconds = withSeconds ? `:${two(date.getSeconds())}` : "";
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}${seconds}`;
}

/** Returns what a field for local times holds as an instant, or undefined if it is empty. */
export function instantOf(input: string): string | undefined {
  return input ? new Date(input).toISOString() : undefined;
}

/** Returns the next time at which a clock in this zone shows an hour. */
export function nextHour(hour: number, now: number): number {
  const date = new Date(now);
  date.setHours(hour, 0, 0, 0);
  if (date.getTime() <= now) date.setDate(date.getDate() + 1);
  return date.getTime();
}
