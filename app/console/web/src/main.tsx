import { MutationCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/http";
import "./app.css";
import { PreferencesProvider } from "./preferences";
import { router } from "./router";
import { SessionProvider } from "./session";
import { ToastProvider } from "./ui/controls";

const RETRIES = 3;

const client = new QueryClient({
  mutationCache: new MutationCache(),
  defaultOptions: {
    queries: {
      // Only what may work a moment later is tried again.
      retry: (count, error) =>
        count < RETRIES && (!(error instanceof ApiError) || error.status === 0 || error.status === 503),
      refetchOnWindowFocus: true,
    },
  },
});

// After an upgrade the files of the page that is open are gone: load the new page once.
window.addEventListener("vite:preloadError", () => {
  if (sessionStorage.getItem("carillon-reloaded") !== __BUILD__) {
    sessionStorage.setItem("carillon-reloaded", __BUILD__);
    location.reload();
  }
});

createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <PreferencesProvider>
        <SessionProvider>
          <ToastProvider>
            <RouterProvider router={router} />
          </ToastProvider>
        </SessionProvider>
      </PreferencesProvider>
    </QueryClientProvider>
  </StrictMode>,
);
