"""Notes of a project: several named pages of Markdown, and never written over unseen."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts.refusals import Refusal
from accounts.rights import Right
from experiments import places
from experiments.models import Project
from shown.source_text import markdown
from webui.pages.experiments.notes import MOST_CHARACTERS, stamp
from webui.pages.frame import form, show, user_of
from webui.pages.places import page as place_pages
from webui.query import as_whole

NAME_CHARACTERS = 255
Note = dict[str, str]
_NEW: Note = {"name": "", "contents": ""}


@form(Right.EDIT)
def notes(request: HttpRequest, project_id: int) -> HttpResponse:
    """GET: the page of notes `?note` (from 0), with `?edit` in an editor (`note=new`: one more); POST: keep it."""
    found = place_pages.find_project(project_id)
    place, problem = _place(found.notes, request.GET.get("note", "")), ""
    note = found.notes[place] if place is not None else _NEW
    context = {"stamp": _stamp(note)}
    if request.method == "POST":
        context["stamp"] = request.POST.get("seen", "")
        note = {
            "name": request.POST.get("name", "").strip(),
            "contents": request.POST.get("notes", "").replace("\r\n", "\n"),
        }
        try:
            return redirect(_kept(request, found, place, note))
        except Refusal as refusal:
            problem = str(refusal)
    user = user_of(request)
    may_write = places.may_write_notes(user, found)
    return show(
        request,
        "project_notes",
        place_pages.head(user, found, "notes")
        | context
        | {
            "place": place,
            "note": note,
            "shown": markdown(note["contents"]),
            "problem": problem,
            "may_write": may_write,
            "edits": may_write and ("edit" in request.GET or request.method == "POST"),
            "most": MOST_CHARACTERS,
        },
        room=place_pages.ROOM,
        fragment="project_head",
        status=400 if problem else 200,
    )


def _place(pages: list[Note], asked: str) -> int | None:
    """Which page is meant; the first unless another, none for a new one."""
    if asked == "new" or not pages:
        return None
    return as_whole(asked, len(pages) - 1) or 0


def _stamp(note: Note) -> str:
    """Its name counts, too: pages move up when one before them is removed, and several may be empty."""
    return stamp(f"{note['name']}\n{note['contents']}")


@transaction.atomic
def _kept(request: HttpRequest, found: Project, place: int | None, note: Note) -> str:
    """The address of the page after it was kept, or removed. Raises Refusal."""
    address = f"/projects/{found.pk}/notes"
    pages = places.locked_notes(found.pk)
    before = pages[place : place + 1] if place is not None else [_NEW]
    if [request.POST.get("seen")] != [_stamp(each) for each in before]:
        raise Refusal(
            "someone else has changed these notes; open them in another tab, and merge both changes."
        )
    if "remove" in request.POST and place is not None:
        pages.pop(place)
        places.write_notes(user_of(request), found, pages)
        messages.success(request, f"The page {before[0]['name']} was removed.")
        return address
    if not 0 < len(note["name"]) <= NAME_CHARACTERS:
        raise Refusal(f"the name of a page must have 1 to {NAME_CHARACTERS} characters.")
    if len(note["contents"]) > MOST_CHARACTERS:
        raise Refusal(
            f"the notes have {len(note['contents']):,} characters; at most {MOST_CHARACTERS:,} are allowed."
        )
    if place is None:
        place = len(pages)
        pages.append(note)
    else:
        pages[place] = note
    places.write_notes(user_of(request), found, pages)
    messages.success(request, "The notes were saved.")
    return f"{address}?note={place}"
