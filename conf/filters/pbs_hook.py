"""PBS Pro, OpenPBS: refuse jobs whose attributes have control characters. A line feed in the name, account, or a
resource of a job breaks the server's accounting log, and can forge jobs of other users in it.

Install as a manager of PBS:
  qmgr -c "create hook refuse_control_characters"
  qmgr -c "set hook refuse_control_characters event = 'queuejob,modifyjob'"
  qmgr -c "import hook refuse_control_characters application/x-python default pbs_hook.py"
"""

import pbs

TEXTS = (
    "Job_Name",
    "Account_Name",
    "project",
    "group_list",
    "User_List",
    "Mail_Users",
    "queue",
    "depend",
    "Error_Path",
    "Output_Path",
)
RESOURCES = "Resource_List"


def has_control_character(value):
    """Whether the text of a value has a control character."""
    return any(ord(character) < 32 or 127 <= ord(character) < 160 for character in str(value))


def refused(job):
    """The name of an attribute with a control character; None: there is none."""
    for name in TEXTS:
        value = getattr(job, name, None)
        if value is not None and has_control_character(value):
            return name
    resources = getattr(job, RESOURCES, None)
    for name in resources.keys() if resources is not None else ():
        value = resources[name]
        if has_control_character(name) or (value is not None and has_control_character(value)):
            return RESOURCES
    return None


event = pbs.event()
attribute = refused(event.job)
if attribute is not None:
    event.reject("control characters, such as line feeds, are not allowed in " + attribute)
event.accept()
