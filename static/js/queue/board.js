// The actions of the queue's page. Rows, menus and dialogs come from the server; these modules attach to their attributes.

import "./edit.js";
import "./menu.js";
import "./select.js";
import "./keys.js";
import "./drag.js";
