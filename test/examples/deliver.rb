# The reader's own function, which the examples call: fails for "nobody", tells of all others.
require "json"
$stdout.sync = true
def deliver(payload)
  to = JSON.parse(payload)["to"]
  raise "mailbox full" if to == "nobody"
  puts "delivered to #{to}"
end

