-- Slurm: refuse jobs whose texts have control characters. A line feed in a name or comment breaks saved tables of sacct
-- and the log of jobcomp/filetxt, and can forge jobs of other users in them.
--
-- Install beside slurm.conf of the controller, and set there: JobSubmitPlugins=lua
-- A site that has a job_submit.lua calls refuse_control_characters from it.

local TEXTS = {
    "account", "admin_comment", "burst_buffer", "comment", "container", "dependency", "extra", "features", "gres",
    "licenses", "mcs_label", "name", "network", "partition", "qos", "req_nodes", "reservation", "std_err", "std_in",
    "std_out", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "wckey", "work_dir",
}

function refuse_control_characters(job)
    for _, name in ipairs(TEXTS) do
        local text = job[name]
        if type(text) == "string" and string.find(text, "%c") then
            slurm.log_user("Your job is refused: control characters, such as line feeds, are not allowed in its %s", name)
            return slurm.ERROR
        end
    end
    return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, user_id)
    return refuse_control_characters(job)
end

function slurm_job_modify(job, job_record, partitions, user_id)
    return refuse_control_characters(job)
end

return slurm.SUCCESS
