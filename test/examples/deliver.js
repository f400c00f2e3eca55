// The reader's own function, which the examples call: fails for "nobody", tells of all others.
async function deliver(payload) {
  if (payload.to === 'nobody') throw new Error('mailbox full')
  console.log('delivered to ' + payload.to)
}

