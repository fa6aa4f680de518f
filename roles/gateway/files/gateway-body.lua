-- SPDX-License-Identifier: GPL-3.0-or-later

-- Two actions read the body of a request. HAProxy's json_query finds nothing in a body that is longer than its buffer, and takes the
-- first of two equal keys; vLLM takes the last.
--
-- "model" sets txn.model to the model that the body names, as JSON or as a form. It stays unset where the body names none, or not
-- within the part that HAProxy has, and is "?" where no model can have the name. vLLM reads the body itself and refuses models that
-- it does not serve, so a wrong guess here gives nobody another service.
--
-- "affinity" sets txn.affinity to what the requests of one conversation have in common, and leaves it unset where it finds nothing.

local SPACE = "[ \t\r\n]*"
local QUOTE, COMMA, OPEN_LIST, BACKSLASH, OPEN_OBJECT = 34, 44, 91, 92, 123
-- Of names in the configuration; an escape has six characters at most.
local LONGEST, ESCAPED = 256, 6
-- Of a user's message that is hashed; of messages that are searched for the first one of a user.
local MESSAGE_BYTES, MESSAGES = 16384, 16
local LONGEST_KEY = 16
-- Of the outermost object, and of a form: no API has as many. RFC 2046 has the length of a boundary.
local MEMBERS, PARTS, LONGEST_BOUNDARY = 256, 32, 70

-- Every function here takes time that grows with the length of the body only, because one client must not stop the others: a loop
-- goes on behind what it has read, and no search runs past the end of what is asked about (tests/hostile/test_gateway_bodies.py).

-- The position of the quote that ends the string whose first character is at ``at``, nil if it is not there.
local function closing_quote(body, at)
    local found = body:find('"', at, true)
    while found do
        local first = found
        while first > at and body:byte(first - 1) == BACKSLASH do
            first = first - 1
        end
        if (found - first) % 2 == 0 then
            return found
        end
        found = body:find('"', found + 1, true)
    end
    return nil
end

-- The position behind a value of an object: of the comma or brace that follows, nil if it is not there.
local function value_end(body, at)
    local depth = 0
    while true do
        at = body:find(depth == 0 and '["%[%]{},]' or '["%[%]{}]', at)
        local letter = at and body:byte(at)
        if letter == QUOTE then
            at = closing_quote(body, at + 1)
        elseif letter == OPEN_LIST or letter == OPEN_OBJECT then
            depth = depth + 1
        elseif depth == 0 then
            return at
        else
            depth = depth - 1
        end
        if not at then
            return nil
        end
        at = at + 1
    end
end

-- The text of a JSON string without its escapes; characters outside ASCII, and those that no name has, become "?".
local function unescaped(text)
    local parts, at = {}, 1
    while true do
        local found = text:find("\\", at, true)
        parts[#parts + 1] = text:sub(at, (found or 0) - 1)
        if not found then
            return table.concat(parts)
        end
        local code = text:match("^u(%x%x%x%x)", found + 1)
        local letter = text:match('^["/\\]', found + 1)
        local number = code and tonumber(code, 16)
        parts[#parts + 1] = letter or (number and number < 128 and string.char(number)) or "?"
        at = found + (code and 6 or 2)
    end
end

-- A name as models have them, "?" for any other text, nil for an empty one: vLLM then takes its own model.
local function name_of(text)
    if text == "" then
        return nil
    end
    local fits = #text <= LONGEST and text:find("^%w[%w._:/@+-]*$")
    return fits and text or "?"
end

-- Call ``visit`` with the name of each member of the outermost object, the position of its value and the one behind it, which is
-- nil where the value is not complete.
local function each_member(body, visit)
    local at = body:match("^\239?\187?\191?" .. SPACE .. "{()")
    for _ = 1, at and MEMBERS or 0 do
        local key = body:match("^" .. SPACE .. '"()', at)
        local key_end = key and closing_quote(body, key)
        local value = key_end and body:match("^" .. SPACE .. ":" .. SPACE .. "()", key_end + 1)
        if not value then
            return
        end
        local after = value_end(body, value)
        visit(key_end - key <= ESCAPED * LONGEST_KEY and unescaped(body:sub(key, key_end - 1)) or "", value, after)
        at = after and body:byte(after) == COMMA and after + 1
        if not at then
            return
        end
    end
end

-- The text of the string at ``value``, "?" for a long one, nil for anything else.
local function string_at(body, value)
    local stop = body:byte(value) == QUOTE and closing_quote(body, value + 1)
    if not stop then
        return nil
    end
    return stop - value > ESCAPED * LONGEST and "?" or unescaped(body:sub(value + 1, stop - 1))
end

-- The last "model" of the outermost object.
local function model_in_json(body)
    local model
    each_member(body, function(name, value, after)
        if name == "model" then
            local text = string_at(body, value)
            if text then
                model = name_of(text)
            elseif after then
                model = nil
            end
        end
    end)
    return model
end

-- The last field "model" among the first ones of a form, as clients send sound.
local function model_in_form(body, boundary)
    local line, model = "\r\n--" .. boundary, nil
    local _, at = body:find(line:sub(3), 1, true)
    for _ = 1, at and PARTS or 0 do
        local stop, next_at = body:find(line, at + 1, true)
        if not stop then
            return model
        end
        local part = body:sub(at + 1, stop - 1)
        local head_end, value = part:find("\r\n\r\n", 1, true)
        if head_end and #part - value <= LONGEST then
            local head = part:sub(1, head_end - 1):lower() .. "\r\n"
            if head:find('\r\ncontent%-disposition:[^\r\n]*[; ]name="?model"?[;\r ]') then
                model = name_of(part:sub(value + 1))
            end
        end
        at = next_at
    end
    return model
end

core.register_action("model", { "http-req" }, function(txn)
    local body = txn.sf:req_body()
    local kind = txn.sf:req_fhdr("content-type")
    local boundary = kind:lower():find("^multipart/form%-data") and kind:match('[Bb]oundary="?([^";]+)')
    local model
    if boundary and #boundary <= LONGEST_BOUNDARY then
        model = model_in_form(body, boundary)
    elseif not boundary then
        model = model_in_json(body)
    end
    if model then
        txn:set_var("txn.model", model)
    end
end)

-- Whether a message is one of a user. The quotes of a text are escaped, so what is found there is no name of a member.
local function is_users(message)
    local _, at = message:find('"role"', 1, true)
    while at do
        if message:find("^" .. SPACE .. ":" .. SPACE .. '"user"', at + 1) then
            return true
        end
        _, at = message:find('"role"', at + 1, true)
    end
    return false
end

-- The first message of a user in the value at ``value``, which ends before ``after``; the whole value where it holds no messages.
local function first_message(body, value, after)
    local at = body:match("^%[()" .. SPACE .. "{", value)
    if not at then
        return body:sub(value, (after or 0) - 1)
    end
    for _ = 1, MESSAGES do
        local stop = value_end(body, at)
        local message = body:sub(at, (stop or 0) - 1)
        if is_users(message) then
            return message
        end
        at = stop and body:byte(stop) == COMMA and stop + 1
        if not at then
            return nil
        end
    end
    return nil
end

-- The session that a body names, and the first message of a user.
local function conversation(body)
    local session, message
    each_member(body, function(name, value, after)
        if name == "prompt_cache_key" then
            session = string_at(body, value)
        elseif name == "messages" or name == "input" or name == "prompt" then
            message = first_message(body, value, after)
        end
    end)
    return session, message
end

-- Arguments: session or prefix, and the number of bytes to read, so that each request of a conversation is read as far.
core.register_action("affinity", { "http-req" }, function(txn, by, bytes)
    local session, message = conversation(txn.sf:req_body():sub(1, tonumber(bytes)))
    if session and session ~= "" then
        txn:set_var("txn.affinity", session)
    elseif by == "prefix" and message then
        -- Clients mark what is to be cached, and move the mark with each request.
        message = message:sub(1, MESSAGE_BYTES):gsub("," .. SPACE .. '"cache_control"' .. SPACE .. ":" .. SPACE .. "{[^{}]*}", "")
        txn:set_var("txn.affinity", tostring(txn.c:xxh64(message)))
    end
end, 2)
