// What the Metrics page of a trial shows, kept in its address, so that every view is a link.
//
// Others read `state` and never write it: `change({log: true})` does, keeps the address true and tells who asked with `onChange`.

import { stateOf } from "../page_state.js";

const NOTHING = { table: false, q: "", prefix: "", m: [], pin: [], x: "step", log: false, smooth: 0, from: null, to: null, expand: "", page: 1 };

/**
 * table: whether its drawer is open. q, prefix, page: of the table. m: names of charts that are ticked, pin: of those that stand first. from, to: ends of the
 * window on the axis x or null; steps, epochs, seconds since the start, or epoch seconds. expand: the chart that is large.
 */
export const { state, change, address, onChange } = stateOf(NOTHING, ["q", "smooth"]);
