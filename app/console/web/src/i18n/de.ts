import type { Messages } from "./en";
const de = {} as Messages;
export default de;
