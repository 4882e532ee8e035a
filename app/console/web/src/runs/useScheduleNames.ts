import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { schedules } from "../api/client";

const MOST = 200;
const FRESH_MS = 60_000;

/** The names of schedules by their ids, asked for all at once. One that is gone has none. */
export function useScheduleNames(ids: (string | null)[]): Record<string, string> {
  const wanted = [...new Set(ids.filter((id) => id !== null))].sort().slice(0, MOST).join(",");
  const query = useQuery({
    queryKey: ["schedule-names", wanted],
    queryFn: () => schedules.list({ ids: wanted, fields: "id,name", limit: MOST }),
    enabled: wanted !== "",
    staleTime: FRESH_MS,
    retry: false,
    placeholderData: keepPreviousData,
  });
  return Object.fromEntries(query.data?.items.map((row) => [row.id, row.name]) ?? []);
}
