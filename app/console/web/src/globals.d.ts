/** The id of the build, which vite puts in. */
declare const __BUILD__: string;
